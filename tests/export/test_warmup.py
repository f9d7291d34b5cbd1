"""The warm-up file is the message that TF Serving reads, byte for byte."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from tfbnood.export.warmup import prediction_log_class, write_warmup

IMAGES = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)


def records(path):
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def field(number, content):
    """A length-delimited field by the encoding rules of protocol buffers, written out by hand."""
    encoded, size = bytes([number << 3 | 2]), len(content)
    while size > 0x7F:
        encoded += bytes([size & 0x7F | 0x80])
        size >>= 7
    return encoded + bytes([size]) + content


def test_the_bytes_are_the_fields_of_tf_serving_s_apis(tmp_path):
    write_warmup(tmp_path / "requests", "digits", {"serving_default": {"images": IMAGES}})
    tensor = tf.make_tensor_proto(IMAGES).SerializeToString()
    spec = field(1, field(1, b"digits") + field(3, b"serving_default"))
    inputs = field(2, field(1, b"images") + field(2, tensor))
    assert records(tmp_path / "requests") == [field(6, field(1, spec + inputs))]


def test_every_signature_has_a_record_with_all_its_inputs(tmp_path):
    requests = {
        "two": {"b": np.array([2, 3]), "a": IMAGES},
        "encoded": {"image_bytes": np.array([b"\x89PNG\x00", b""], object)},
    }
    write_warmup(tmp_path / "requests", "größe", requests)
    logs = [prediction_log_class().FromString(record) for record in records(tmp_path / "requests")]
    assert [log.predict_log.request.model_spec.signature_name for log in logs] == list(requests)
    assert {log.predict_log.request.model_spec.name for log in logs} == {"größe"}
    for log, inputs in zip(logs, requests.values(), strict=True):
        found = log.predict_log.request.inputs
        assert set(found) == set(inputs)
        for name, array in inputs.items():
            tensor = tensor_pb2.TensorProto.FromString(found[name].SerializeToString())
            np.testing.assert_array_equal(tf.make_ndarray(tensor), array)


def test_a_file_is_the_same_whenever_it_is_written(tmp_path):
    inputs = dict.fromkeys("dacb", IMAGES)
    for path, order in [("first", inputs), ("second", dict(reversed(inputs.items())))]:
        write_warmup(tmp_path / path, "m", {"s": order})
    assert records(tmp_path / "first") == records(tmp_path / "second")
