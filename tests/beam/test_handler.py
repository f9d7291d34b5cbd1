"""Exports in Beam's own RunInference: every signature, metrics, batches, versions."""

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from apache_beam.ml.inference.base import KeyedModelHandler, ModelMetadata, RunInference
from beam.collecting import Collect, run

from tfbnood.beam import ExportHandler, find_export
from tfbnood.errors import SavedDetectorError, StatisticError


def infer(handler, examples, version=None):
    """The answers in the order of the examples, and the metrics."""
    pipeline, collect, options = beam.Pipeline("FnApiRunner"), Collect(), {}
    pairs = pipeline | beam.Create(list(enumerate(examples)), reshuffle=False)
    if version is not None:
        names = pipeline | "Versions" >> beam.Create([ModelMetadata(str(version), "new")])
        options = {"model_metadata_pcoll": names}
    _ = pairs | RunInference(KeyedModelHandler(handler), **options) | collect
    metrics = run(pipeline)
    return [answer for _, answer in sorted(collect.found, key=lambda pair: pair[0])], metrics


@pytest.fixture(scope="module")
def loaded(base):
    return tf.saved_model.load(str(base / "1"))


@pytest.mark.parametrize("signature", ["uint8", "serving_default", "encoded", "log_prob"])
def test_any_signature_answers_as_the_saved_model_does(signature, base, loaded, digits):
    images = digits.test[:40]
    examples, name, batch = list(images), "images", images
    if signature == "encoded":
        examples = batch = [tf.io.encode_png(image).numpy() for image in images]
        name = "image_bytes"
    function = loaded.signatures[signature]
    dtype = function.structured_input_signature[1][name].dtype
    expected = function(**{name: tf.constant(batch, dtype)})
    found, _ = infer(ExportHandler(base, signature=signature), examples)
    for output, values in expected.items():
        column = [answer.inference[output] for answer in found]
        np.testing.assert_allclose(column, values.numpy(), rtol=1e-5)
    assert {answer.model_id for answer in found} == {str(base / "1")}


def test_an_example_for_score_batch_is_a_group(base, loaded, digits):
    groups = [digits.test[:20], 255 - digits.test[20:36]]
    found, _ = infer(ExportHandler(base, signature="score_batch"), groups)
    for group, answer in zip(groups, found, strict=True):
        expected = loaded.signatures["score_batch"](images=tf.constant(group, tf.float32))
        for output, values in expected.items():
            np.testing.assert_allclose(answer.inference[output], values.numpy(), rtol=1e-5)


def test_beam_batches_and_counts_and_the_model_is_loaded_once(base, digits):
    handler = ExportHandler(base, min_batch_size=8, max_batch_size=16)
    _, metrics = infer(handler, list(digits.test[:100]))
    assert metrics["num_inferences"] == 100
    assert 8 <= metrics["inference_request_batch_size"].max <= 16
    assert metrics["inference_request_batch_byte_size"].sum >= 100 * 64  # and the keys
    assert metrics["load_model_latency_milli_secs"].count == 1


def test_the_newest_version_is_that_of_the_largest_number(two_versions):
    assert find_export(two_versions).version == str(two_versions / "10")
    assert find_export(two_versions / "9").version == str(two_versions / "9")
    assert ExportHandler(f"{two_versions}/").version == str(two_versions / "10")


def test_an_export_states_what_a_pipeline_needs(base):
    found = find_export(base)
    assert (found.image_shape, found.fpr) == ((8, 8, 1), 0.05)
    assert found.calibration_images == 300
    assert found.group_sizes == (1, 4, 16, 64)


@pytest.mark.parametrize("part", ["", "saved_model.pb"])
def test_a_side_input_brings_another_version(part, two_versions, digits):
    handler = ExportHandler(two_versions / "9")
    found, metrics = infer(handler, list(digits.test[:5]), two_versions / "10" / part)
    assert {answer.model_id for answer in found} == {str(two_versions / "10")}
    assert metrics["new_num_inferences"] == 5


def test_an_empty_update_keeps_the_version(two_versions):
    handler = ExportHandler(two_versions / "9")
    handler.update_model_path("")
    assert handler.version == str(two_versions / "9")


def test_a_base_without_versions_is_refused_when_the_pipeline_is_built(tmp_path):
    with pytest.raises(SavedDetectorError, match="exported versions"):
        ExportHandler(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"damaged")
    with pytest.raises(SavedDetectorError, match=r"detector\.json"):
        find_export(tmp_path)
    with pytest.raises(SavedDetectorError, match="cannot be loaded"):
        ExportHandler(tmp_path).load_model()


def test_an_unknown_signature_is_named_with_those_there_are(base):
    with pytest.raises(StatisticError, match="encoded, log_prob, score_batch"):
        ExportHandler(base, signature="classify").load_model()
