"""Detectors take data sets, generators and lists of pictures: the same results as for arrays, in constant memory."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from brought import trained_brought_model
from PIL import Image

import tfbnood
from tfbnood.data.folders import iterate_folder
from tfbnood.errors import DataError


@pytest.fixture(scope="module")
def model(digits):
    return trained_brought_model(digits.train)


@pytest.fixture(scope="module", params=["log_prob", "pixel_pca", "bn_moments", "own"])
def detector(request, model, digits):
    if request.param == "own":  # not in TensorFlow operations, beside a likelihood
        made = tfbnood.Detector(model, Darkness(), reference=digits.train)
    else:
        made = tfbnood.Detector(model, request.param, reference=digits.train)
    return made.calibrate(digits.calibration)


class Darkness(tfbnood.statistics.Statistic):
    name = "test_darkness"
    scope = "image"
    needs_model = False

    def _fit(self, model, reference):
        self.mean_ = reference.mean()

    def _score(self, images):
        return np.abs(images.mean(axis=(1, 2, 3)) - self.mean_)


def as_dataset(images):
    return tf.data.Dataset.from_tensor_slices(images).batch(50)


def as_pictures(images):
    return [Image.fromarray(image[..., 0]) for image in images]


@pytest.mark.parametrize("wrap", [iter, as_dataset, as_pictures], ids=["iter", "tf.data", "PIL"])
def test_a_stream_has_the_scores_of_the_array_bit_for_bit(detector, digits, wrap):
    images = np.concatenate([digits.test[:180], 255 - digits.test[:20]])
    expected = detector.predict(images, fpr=0.05)
    found = detector.predict(wrap(images), fpr=0.05)
    np.testing.assert_array_equal(found.score, expected.score)
    np.testing.assert_array_equal(found.p_value, expected.p_value)
    np.testing.assert_array_equal(found.is_ood, expected.is_ood)
    np.testing.assert_array_equal(found.bits_per_dim, expected.bits_per_dim)
    np.testing.assert_array_equal(found.pictures.rows, expected.pictures.rows)
    np.testing.assert_array_equal(found.pictures.images, images[expected.pictures.rows])
    np.testing.assert_array_equal(detector.score(wrap(images)), expected.score)
    np.testing.assert_array_equal(detector.p_values(wrap(images)), expected.p_value)
    np.testing.assert_array_equal(detector.rank(wrap(images)), detector.rank(images))
    assert detector.test_batch(wrap(images)) == detector.test_batch(images)


def test_the_most_suspicious_pictures_of_a_stream_are_those_with_the_highest_scores(
    detector, digits
):
    found = detector.predict(iter(digits.test))
    expected = np.argsort(-detector.score(digits.test), kind="stable")[:24]
    np.testing.assert_array_equal(found.pictures.rows, expected)
    np.testing.assert_array_equal(found.pictures.images, digits.test[expected])


def test_a_batch_statistic_takes_64_images_of_a_stream_as_one_request(model, digits):
    detector = tfbnood.Detector(model, "bn_delta", reference=digits.train, batch_size=16)
    detector.calibrate(iter(digits.calibration))
    images = digits.test[:100]
    last = np.concatenate([images[64:], images[:28]])  # completed from the front
    expected = np.concatenate([detector.score(images[:64]), detector.score(last)[:36]])
    np.testing.assert_array_equal(detector.score(iter(images)), expected)
    found = detector.predict(iter(images), fpr=0.05)
    np.testing.assert_array_equal(found.score, expected)
    assert found.group_size == 64
    assert found.pictures.rows.max() < 100
    # Fewer are an array.
    np.testing.assert_array_equal(detector.score(iter(images[:50])), detector.score(images[:50]))


def test_a_stream_calibrates_as_an_array_does(model, digits):
    detector = tfbnood.Detector(model, "log_prob", reference=digits.train)
    expected = detector.calibrate(digits.calibration).calibration.null_of_images(1)
    found = detector.calibrate(as_dataset(digits.calibration)).calibration.null_of_images(1)
    np.testing.assert_array_equal(found, expected)


def test_a_stream_calibrates_for_tolerated_changes(digits):
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train, tolerate=("mirror",))
    expected = detector.calibrate(digits.calibration).calibration.null_of_images(1)
    found = detector.calibrate(iter(digits.calibration)).calibration.null_of_images(1)
    np.testing.assert_array_equal(found, expected)  # Mirrors draw nothing.


def test_reference_images_may_be_a_stream(digits):
    found = tfbnood.Detector(None, "pixel_pca", reference=as_dataset(digits.train))
    expected = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    np.testing.assert_array_equal(found.score(digits.test), expected.score(digits.test))
    found.fit(iter(digits.train))
    np.testing.assert_array_equal(
        found.score(digits.test), expected.fit(digits.train).score(digits.test)
    )


def test_reading_is_in_another_thread_than_scoring(detector, digits):
    threads = set()

    def source():
        for image in digits.test:
            threads.add(threading.current_thread())
            yield image

    detector.score(source())
    assert len(threads) == 2  # here for the first chunk, which is checked before anything is done


def test_the_next_images_are_read_while_others_are_scored(digits):
    """Each waits here for the other to begin."""
    scoring, reading = threading.Event(), threading.Event()
    met = []

    class Waiting(Darkness):
        name = "test_waiting"

        def _score(self, images):
            scoring.set()
            met.append(reading.wait(timeout=120))
            return super()._score(images)

    detector = tfbnood.Detector(None, Waiting(), reference=digits.train)

    def source():
        yield digits.test[:64]
        met.append(scoring.wait(timeout=120))
        reading.set()
        yield digits.test[64:128]

    detector.score(source())
    assert met == [True, True, True]


def test_a_large_folder_is_scored_before_it_is_listed(digits, tmp_path, monkeypatch):
    for index in range(20):
        Image.fromarray(digits.test[index, ..., 0]).save(tmp_path / f"{index:05}.png")
    for index in range(20, 9000):  # the same files under other names
        os.link(tmp_path / f"{index % 20:05}.png", tmp_path / f"{index:05}.png")
    listed, listed_at_score = [0], []
    scandir = os.scandir

    class Counting:
        def __init__(self, path):
            self.entries = scandir(path)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.entries.close()

        def __iter__(self):
            return self

        def __next__(self):
            entry = next(self.entries)
            listed[0] += 1
            return entry

    class Recorded(Darkness):
        name = "test_recorded"

        def _score(self, images):
            listed_at_score.append(listed[0])
            return super()._score(images)

    detector = tfbnood.Detector(None, Recorded(), reference=digits.train)
    monkeypatch.setattr(os, "scandir", Counting)
    chunks = iterate_folder(tmp_path, (8, 8, 1))
    scores = detector.score(chunk.images for chunk in chunks)
    assert listed_at_score[0] <= 4096
    assert listed[0] == len(scores) == 9000
    # Every file once.
    monkeypatch.undo()
    expected = detector.score(digits.test[:20])
    np.testing.assert_array_equal(np.sort(scores), np.sort(np.tile(expected, 450)))


def test_bad_streams_are_refused_before_work_and_bad_chunks_by_their_place(detector, digits):
    with pytest.raises(DataError, match="must be finite; take"):
        detector.predict(as_dataset(digits.test).repeat())
    images = list(digits.test)
    images[200] = images[200].astype(np.float32) * np.nan
    with pytest.raises(DataError, match=r"images\[192:256\] must be finite"):
        detector.score(iter(images))


MEASURE = """
import resource, sys
import numpy as np
import tfbnood

def images(count):
    random = np.random.RandomState(0)
    for _ in range(count // 100):
        yield random.randint(0, 256, (100, 48, 48, 3), np.uint8)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

detector = tfbnood.Detector(None, "pixel_pca", reference=next(images(100)))
calls = [
    lambda count: detector.calibrate(images(count)),
    lambda count: detector.predict(images(count)),
    lambda count: detector.score(images(count)),
    lambda count: detector.p_values(images(count)),
]
for call in calls:
    call(1000)
before = peak()
for call in calls:
    call(20_000)
print(peak() - before)
"""


def test_peak_memory_is_flat_from_1000_to_20000_images():
    """20,000 images are 138 MB."""
    run = subprocess.run(
        [sys.executable, "-c", MEASURE],
        capture_output=True,
        text=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 20, run.stdout
