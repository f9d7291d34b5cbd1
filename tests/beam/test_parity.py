"""Scores of a shipped detector through Beam: those of the detector in process, and the same in every batch.

In process the weights are constants, which TensorFlow folds into the operations around them; in an export they are
variables. So the two round differently. The unit is the spread of calibration scores: scores themselves lie around 0,
where a relative difference means nothing.
"""

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from beam.collecting import Collect, run

from tfbnood import zoo
from tfbnood.beam import ExportHandler, ScoreImages


@pytest.fixture(scope="module")
def mixed(digits):
    """Ordinary digits, and inverted ones that raise alarms."""
    return np.concatenate([digits.test[:90], 255 - digits.test[:10]])


@pytest.fixture(scope="module")
def model_base():
    return zoo.base("digits_realnvp")


def test_a_shipped_detector_scores_as_it_does_in_process(model_base, mixed):
    detector = zoo.load("digits_realnvp")
    expected = detector.predict(mixed)
    null = detector.calibration.null_of_images(1)
    pairs = [(row, tf.io.encode_png(image).numpy()) for row, image in enumerate(mixed)]
    pipeline, collect = beam.Pipeline("FnApiRunner"), Collect()
    _ = (pipeline | beam.Create(pairs) | ScoreImages(model_base)).scores | collect
    run(pipeline)
    found = sorted(collect.found, key=lambda record: record["key"])
    scores = np.array([record["score"] for record in found])
    spread = np.subtract(*np.percentile(null, [75, 25]))
    assert np.abs(scores - expected.score).max() < 3e-5 * spread
    bits = np.array([record["bits_per_dim"] for record in found])
    np.testing.assert_allclose(bits, expected.bits_per_dim, atol=1e-4)
    # A p-value counts calibration scores: equal but for one that lies between the two roundings.
    ranks = np.rint(np.array([record["p_value"] for record in found]) * (len(null) + 1))
    off = np.abs(ranks - np.rint(expected.p_value * (len(null) + 1)))
    assert off.max() <= 1
    assert (off > 0).mean() <= 0.02
    alarms = np.array([record["is_ood"] for record in found])
    np.testing.assert_array_equal(alarms, expected.p_value <= 0.01)
    assert alarms[90:].any()


def test_scores_are_the_same_bit_for_bit_however_batches_are_cut(model_base, mixed):
    handler = ExportHandler(model_base)
    model = handler.load_model()

    def scores(cuts):
        parts = np.split(np.arange(len(mixed)), cuts)
        answers = [
            answer for part in parts for answer in handler.run_inference(list(mixed[part]), model)
        ]
        return [answer.inference["score"] for answer in answers]

    whole = scores([64])
    assert scores([1, 8, 40, 41]) == whole
    assert len(whole) == len(mixed)


def test_short_batches_may_stay_short(base, digits):
    rows = []
    handler = ExportHandler(base, complete=False)
    model = handler.load_model()
    answer = model.answer
    model.answer = lambda batch: rows.append(len(batch)) or answer(batch)
    handler.run_inference(list(digits.test[:5]), model)
    ExportHandler(base).run_inference(list(digits.test[:5]), model)
    ExportHandler(base, min_batch_size=4, max_batch_size=4).run_inference(
        list(digits.test[:3]), model
    )
    ExportHandler(base, max_batch_size=200).run_inference(list(digits.test[:100]), model)
    assert rows == [5, 64, 4, 128]
