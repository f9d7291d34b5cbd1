"""`as_images` lets images through unchanged and names what is wrong with everything else."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tfbnood._core.images import as_images
from tfbnood.errors import DataError, TfbnoodError

DIGITS = np.rint(load_digits().images[:20, ..., None] * 255 / 16).astype(np.uint8)


def test_uint8_images_pass_without_a_copy():
    assert np.shares_memory(as_images(DIGITS), DIGITS)


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.uint16, np.float16, np.float32, float])
def test_other_number_types_in_0_to_255_become_uint8(dtype):
    result = as_images(DIGITS.astype(dtype))
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, DIGITS)


def test_fractions_are_rounded_to_the_nearest_grey_level():
    np.testing.assert_array_equal(as_images(np.minimum(DIGITS + 0.4, 255)), DIGITS)
    np.testing.assert_array_equal(as_images(np.maximum(DIGITS - 0.4, 0)), DIGITS)


def test_a_list_of_images_stacks():
    np.testing.assert_array_equal(as_images(list(DIGITS)), DIGITS)


def test_float_images_that_are_all_black_pass():
    assert as_images(np.zeros((2, 8, 8, 1))).max() == 0


def test_a_data_error_is_a_value_error_and_ours():
    assert issubclass(DataError, ValueError)
    assert issubclass(DataError, TfbnoodError)


def with_pixel(value: float, index: int = 3) -> np.ndarray:
    images = DIGITS.astype(np.float32)
    images[index, 2, 2, 0] = value
    return images


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (DIGITS > 0, r"must hold numbers in 0–255 .*Received: dtype=bool"),
        (DIGITS.astype(complex), r"must hold numbers .*Received: dtype=complex128"),
        (DIGITS.astype(str), r"must hold numbers .*Received: dtype=<U"),
        (DIGITS.astype(object), r"must hold numbers .*Received: dtype=object"),
        (
            DIGITS / 255,
            r"must lie in 0–255, not 0–1: multiply by 255\. Received: 20 of 20 images with largest values in "
            r"\(0, 1\], first at index 0, dtype=float64$",
        ),
        (DIGITS / 127.5 - 1, r"must lie in 0–255\. Received: values from -1\.0 to 1\.0"),
        (with_pixel(256), r"must lie in 0–255\. Received: values from 0\.0 to 256\.0"),
        (DIGITS.astype(np.int16) - 1, r"must lie in 0–255\. Received: values from -1 to 254"),
        (with_pixel(np.nan), r"must be finite.*in 1 of 20 images, first at index 3"),
        (with_pixel(np.inf, 7), r"must be finite.*in 1 of 20 images, first at index 7"),
        (DIGITS[:0], r"must hold at least one image\. Received: shape=\(0, 8, 8, 1\)"),
        (
            DIGITS[..., 0],
            r"must have the four axes \[n, height, width, channels\]; images\[..., None\] adds a channel axis",
        ),
        (DIGITS.reshape(20, 64), r"must have the four axes .*Received: shape=\(20, 64\)"),
        (np.repeat(DIGITS, 2, -1), r"must have 1 or 3 channels .*Received: shape=\(20, 8, 8, 2\)"),
        ([DIGITS[0], DIGITS[1, :4]], r"must all have one shape\. Received: a list"),
    ],
)
def test_what_is_no_image_is_named(images, message):
    with pytest.raises(DataError, match=f"^images {message}"):
        as_images(images)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64])
def test_one_image_in_0_to_1_among_others_is_found(dtype):
    images = DIGITS.astype(dtype)
    for index in (4, 7):
        images[index] = images[index] > 100
    with pytest.raises(DataError, match=r"not 0–1.*: 2 of 20 images .*, first at index 4, dtype="):
        as_images(images)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((8, 8, 1)),
        np.full((8, 8, 1), 0.2),
        np.full((8, 8, 1), 1.0),
        np.full((8, 8, 1), 1.2),
    ],
    ids=["black", "0.2", "1", "1.2"],
)
def test_the_rule_for_0_to_1_is_that_of_an_export(image):
    import tensorflow as tf

    from tfbnood.export.signatures import Served

    images = np.stack([DIGITS[0], image]).astype(np.float32)
    export = Served.__new__(Served)
    export.image_shape = (8, 8, 1)
    _, valid = export.checked(tf.constant(images))
    try:
        as_images(images)
        accepted = True
    except DataError:
        accepted = False
    assert accepted == bool(valid[1])
    assert valid[0]


def test_another_shape_than_required_is_named():
    with pytest.raises(DataError, match=r"^x must have \(height, width, channels\)=\(28, 28, 1\)"):
        as_images(DIGITS, (28, 28, 1), name="x")
    with pytest.raises(DataError, match=r"^x must have the four axes \[n, 8, 8, 1\];"):
        as_images(DIGITS[0], (8, 8, 1), name="x")
