"""Images from data sets, generators and lists: checked like arrays, read once, a chunk ahead, and never all at once."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_digits

from tfbnood._core.batching import map_batches
from tfbnood._core.images import as_images
from tfbnood._core.stream import ImageStream, as_chunks, sample_images
from tfbnood.errors import DataError

DIGITS = np.rint(load_digits().images[:300, ..., None] * 255 / 16).astype(np.uint8)
LABELS = np.arange(300)
DATASET = tf.data.Dataset.from_tensor_slices(DIGITS)


def pictures(images, mode="L"):
    return [Image.fromarray(image[..., 0]).convert(mode) for image in images]


def refilled():
    """A generator that yields the same array each time, with other images in it."""
    buffer = np.empty((50, 8, 8, 1), np.uint8)
    for start in range(0, 300, 50):
        buffer[:] = DIGITS[start : start + 50]
        yield buffer


STREAMS = {
    "a data set of images": lambda: DATASET,
    "a data set of batches": lambda: DATASET.batch(50),
    "a data set with labels": lambda: tf.data.Dataset.from_tensor_slices((DIGITS, LABELS)).batch(7),
    "a data set of one batch": lambda: DATASET.batch(1000),
    "float32": lambda: DATASET.map(lambda image: tf.cast(image, tf.float32)),
    "a generator of images": lambda: (image for image in DIGITS),
    "a generator of batches": lambda: iter(np.split(DIGITS, 3)),
    "a generator with labels": lambda: zip(DIGITS, LABELS, strict=True),
    "a generator of tensors": lambda: (tf.constant(image) for image in DIGITS),
    "a generator of pictures": lambda: iter(pictures(DIGITS)),
    "a generator of lists of pictures": lambda: (pictures(part) for part in np.split(DIGITS, 4)),
    "an array that is filled again": refilled,
    "a list of pictures": lambda: pictures(DIGITS),
    "a list of arrays": lambda: list(DIGITS),
    "an array": lambda: DIGITS,
}


@pytest.mark.parametrize("kind", STREAMS)
def test_every_kind_gives_the_same_images(kind):
    np.testing.assert_array_equal(as_images(STREAMS[kind](), (8, 8, 1)), DIGITS)
    read = as_chunks(STREAMS[kind](), (8, 8, 1))
    if isinstance(read, ImageStream):
        chunks = list(read.chunks())
        assert [len(chunk) for chunk in chunks] == [64, 64, 64, 64, 44]
        assert {chunk.dtype for chunk in chunks} == {np.dtype(np.uint8)}
        read = np.concatenate(chunks)
    np.testing.assert_array_equal(read, DIGITS)


def test_a_stream_of_less_than_a_chunk_is_an_array():
    np.testing.assert_array_equal(as_chunks(iter(DIGITS[:63])), DIGITS[:63])
    assert isinstance(as_chunks(iter(DIGITS[:64])), ImageStream)


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("size", [64, 100, 299, 300, 400])
def test_a_function_of_batches_sees_of_a_stream_what_it_sees_of_an_array(size, complete):
    def of(images):
        seen = []

        def function(batch):
            seen.append(batch.copy())
            return {"mean": batch.mean(axis=(1, 2, 3)), "row": tf.constant(batch[:, 0, :, 0])}

        return map_batches(function, images, batch_size=size, complete=complete), seen

    found, seen = of(as_chunks(iter(DIGITS)))
    expected, batches = of(DIGITS)
    np.testing.assert_array_equal(found["mean"], DIGITS.mean(axis=(1, 2, 3)))
    np.testing.assert_array_equal(found["row"], DIGITS[:, 0, :, 0])
    np.testing.assert_array_equal(expected["mean"], found["mean"])
    for one, other in zip(seen, batches, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_last_batch_is_completed_from_the_front():
    seen = []
    map_batches(lambda batch: seen.append(batch) or batch, as_chunks(iter(DIGITS)))
    np.testing.assert_array_equal(seen[-1], np.concatenate([DIGITS[256:], DIGITS[:20]]))


def test_the_number_of_images_is_known_where_the_source_says_it():
    assert as_chunks(DATASET.batch(50)).about == 300
    assert as_chunks(DATASET).about == 300
    assert as_chunks(DATASET.filter(lambda image: True)).about is None
    assert as_chunks(iter(DIGITS)).about is None


def test_the_next_chunk_is_read_while_one_is_worked_on():
    read = []

    def source():
        for start in range(0, 300, 64):
            read.append(threading.current_thread())
            yield DIGITS[start : start + 64]

    chunks = as_chunks(source()).chunks()
    next(chunks)
    deadline = time.monotonic() + 60
    while len(read) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(read) == 2  # the next one, and no more
    assert read[1] is not threading.main_thread()
    chunks.close()


def test_an_error_of_the_source_arrives_as_it_is():
    def source():
        yield DIGITS[:200]
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        map_batches(lambda batch: batch, as_chunks(source()))


def test_an_error_of_the_function_ends_the_reading():
    read = []

    def source():
        for _ in range(1000):
            read.append(1)
            yield DIGITS[:64]

    with pytest.raises(ZeroDivisionError):
        map_batches(lambda batch: 1 / 0, as_chunks(source()))
    time.sleep(0.1)
    assert len(read) <= 3


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (lambda: DATASET.repeat(), r"images must be finite; take\(n\)"),
        (lambda: DATASET.take(0), r"images must hold at least one image\. Received: an empty"),
        (lambda: iter([]), r"images must hold at least one image\. Received: an empty stream"),
        (
            lambda: DATASET.map(lambda image: {"image": image, "label": 1}),
            r"images must yield images.*row\[key\].*a dict with image, label for images\[0\]",
        ),
        (
            lambda: iter([*DIGITS[:5], DIGITS[5, :4]]),
            r"images must all have the shape of the first, \(8, 8, 1\).*shape=\(4, 8, 1\) for images\[5\]",
        ),
        (
            lambda: iter(DIGITS[..., 0]),
            r"images must yield images \[height, width, channels\].*shape=\(8, 8\)",
        ),
        (lambda: iter("ab"), r"images must yield images .*shape=\(\), dtype=<U1 for images\[0\]"),
        (
            lambda: iter(pictures(DIGITS[:3], "RGBA")),
            r'images\[0\] must be grey or RGB: use convert\("L"\) .*mode=\'RGBA\'',
        ),
        (lambda: pictures(DIGITS[:3], "P"), r"images\[0\] must be grey .*mode='P'"),
        (
            lambda: [*pictures(DIGITS[:2]), *pictures(DIGITS[:1], "RGB")],
            r"images must all have one size and mode: use image\.resize.*\(8, 8, 3\) for images\[2\]",
        ),
        (
            lambda: [*pictures(DIGITS[:2]), Image.new("L", (9, 8))],
            r"images must all have one size .*shape=\(8, 9, 1\) for images\[2\]",
        ),
        (
            lambda: pictures(DIGITS)[0],
            r"images must be a list of images; .*write a single one as \[image\]",
        ),
        (lambda: pictures(DIGITS[:2], "RGB"), r"\(height, width, channels\)=\(8, 8, 1\)"),
    ],
)
def test_what_is_no_image_is_named(images, message):
    with pytest.raises(DataError, match=message):
        as_chunks(images(), (8, 8, 1))
    with pytest.raises(DataError, match=message):
        as_images(images(), (8, 8, 1))


def test_bad_pixels_are_named_by_their_place_in_the_stream():
    images = DIGITS.astype(np.float32)
    images[130, 0, 0, 0] = np.nan
    stream = as_chunks(iter(images))
    with pytest.raises(DataError, match=r"images\[128:192\] must be finite.*first at index 2"):
        list(stream.chunks())
    with pytest.raises(DataError, match=r"x\[0:64\] must lie in 0–255, not 0–1"):
        as_chunks(iter(DIGITS / 255), name="x")


def test_a_sample_of_a_short_stream_is_all_of_it_in_its_order():
    np.testing.assert_array_equal(sample_images(DATASET, most=300), DIGITS)
    assert sample_images(DIGITS, most=5) is DIGITS  # An array is there already.


def test_a_sample_is_uniform():
    """Each of 200 images is among 50 kept ones with probability 1/4; 400 draws, 5 standard errors."""
    images = np.arange(200, dtype=np.uint8).reshape(200, 1, 1, 1) + np.uint8(2)
    counts = np.zeros(256)
    for seed in range(400):
        found = sample_images(iter(images), most=50, seed=seed).ravel()
        assert len(set(found.tolist())) == 50
        counts[found] += 1
    counts = counts[2:202]
    assert counts.sum() == 400 * 50
    assert np.abs(counts - 100).max() < 5 * np.sqrt(400 * 0.25 * 0.75)
