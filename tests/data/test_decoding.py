"""A server must see the pixels that a folder gives: decoding in a graph against `read_image`."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfbnood.data import decode_image
from tfbnood.data.files import read_image

ORIGINALS = Path(os.environ.get("TFBNOOD_DATA", "nowhere")) / "originals"


@pytest.fixture(scope="module")
def compiled():
    functions = {}

    def decode(content, shape):
        if shape not in functions:
            functions[shape] = tf.function(
                lambda encoded: decode_image(encoded, shape),
                input_signature=[tf.TensorSpec([], tf.string)],
            )
        return functions[shape](content).numpy()

    return decode


@pytest.mark.parametrize("shape", [(128, 128, 3), (28, 28, 1), (96, 64, 3), (200, 300, 3)])
def test_real_files_are_fitted_as_folders_are(compiled, shape):
    files = sorted(ORIGINALS.rglob("*.*"))[::3]
    if not files:
        pytest.skip("TFBNOOD_DATA names no folder with originals/")
    for file in files:
        expected, _ = read_image(file, shape)
        found = compiled(file.read_bytes(), shape)
        # Sums in another order: a value halfway between two may round to the other.
        assert np.abs(found.astype(int) - expected).max() <= 1, file.name
        assert (found == expected).mean() > 0.99, file.name


@pytest.mark.parametrize("size", [(1, 1), (3, 50), (50, 3), (7, 9), (8, 8), (16, 16), (31, 17)])
def test_every_size_is_fitted_as_files_are(compiled, size):
    pixels = np.random.RandomState(0).randint(0, 256, (*size, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    for shape in ((8, 8, 3), (12, 5, 3)):
        expected, _ = read_image(file.getvalue(), shape)
        found = compiled(file.getvalue(), shape)
        assert np.abs(found.astype(int) - expected).max() <= 1
