"""TF Serving's warm-up file: a TFRecord of PredictionLog messages, which the server replays when it loads a version."""

import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow.core.framework import tensor_pb2

__all__ = ["prediction_log_class", "write_warmup"]

# The fields that a warm-up file needs, with the names and numbers of tensorflow_serving/apis: prediction_log.proto,
# predict.proto, model.proto. This avoids the package tensorflow-serving-api, which defines all of them.
_SCHEMA = """
name: "tfbnood/prediction_log.proto" package: "tensorflow.serving" syntax: "proto3"
dependency: "tensorflow/core/framework/tensor.proto"
message_type {
  name: "PredictionLog"
  field { name: "predict_log" number: 6 label: LABEL_OPTIONAL type_name: ".tensorflow.serving.PredictLog" }
}
message_type {
  name: "PredictLog"
  field { name: "request" number: 1 label: LABEL_OPTIONAL type_name: ".tensorflow.serving.PredictRequest" }
}
message_type {
  name: "PredictRequest"
  field { name: "model_spec" number: 1 label: LABEL_OPTIONAL type_name: ".tensorflow.serving.ModelSpec" }
  field { name: "inputs" number: 2 label: LABEL_REPEATED type_name: ".tensorflow.serving.PredictRequest.InputsEntry" }
  nested_type {
    name: "InputsEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type_name: ".tensorflow.TensorProto" }
  }
}
message_type {
  name: "ModelSpec"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "signature_name" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING }
}
"""


def write_warmup(
    path: str | os.PathLike, model: str, requests: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Writes one request per signature.

    Args:
        path: the file, `assets.extra/tf_serving_warmup_requests`.
        model: name of the served model.
        requests: by signature, its inputs by name.
    """
    prediction_log = prediction_log_class()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests.items():
            log = prediction_log()
            request = log.predict_log.request
            request.model_spec.name = model
            request.model_spec.signature_name = signature
            for name, value in inputs.items():
                tensor = tf.make_tensor_proto(value)
                request.inputs[name].ParseFromString(tensor.SerializeToString())
            writer.write(log.SerializeToString(deterministic=True))


@functools.cache
def prediction_log_class() -> Any:
    """The message class of a record, for writing and reading."""
    # A separate pool: tensorflow-serving-api registers the same names in the default one.
    pool = descriptor_pool.DescriptorPool()
    _add(pool, tensor_pb2.DESCRIPTOR)
    pool.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("tensorflow.serving.PredictionLog")
    )


def _add(pool: Any, file: Any) -> None:
    """Adds TensorFlow's definition of a file, after its dependencies."""
    for needed in file.dependencies:
        _add(pool, needed)
    copy = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copy)
    pool.Add(copy)
