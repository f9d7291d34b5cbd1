"""TF Serving's warm-up file: a TFRecord of PredictionLog messages, which the server replays when it loads a version.

The messages are written field by field; the package tensorflow-serving-api, which defines them, is only needed by who
wants to read them.
"""

import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

__all__ = ["write_warmup"]

# Field numbers of tensorflow_serving/apis: prediction_log.proto, predict.proto, model.proto.
_PREDICT_LOG = 6
_REQUEST = 1
_MODEL_SPEC, _INPUTS = 1, 2
_NAME, _SIGNATURE_NAME = 1, 3
_KEY, _VALUE = 1, 2


def write_warmup(
    path: str | os.PathLike, model: str, requests: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Writes one request for each signature.

    Args:
        path: the file, `assets.extra/tf_serving_warmup_requests`.
        model: name of the served model.
        requests: by signature, its inputs by name.
    """
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests.items():
            spec = _field(_NAME, model.encode()) + _field(_SIGNATURE_NAME, signature.encode())
            request = _field(_MODEL_SPEC, spec)
            for name, value in inputs.items():
                tensor = tf.make_tensor_proto(value).SerializeToString()
                request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, tensor))
            writer.write(_field(_PREDICT_LOG, _field(_REQUEST, request)))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])
