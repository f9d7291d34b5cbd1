"""Pictures within a budget of bytes."""

import base64
import io
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from tfbnood.errors import DataError
from tfbnood.report.pictures import (
    LARGE,
    THUMBNAILS,
    Rung,
    as_url,
    encode,
    encode_all,
    encode_map,
    image_reader,
)


def decoded(encoded):
    return Image.open(io.BytesIO(base64.b64decode(encoded)))


def noise(count, *shape):
    return np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)


@pytest.mark.parametrize("shape", [(28, 28, 1), (64, 48, 3), (1, 1, 1)])
def test_tiny_images_are_kept_without_loss(shape):
    images = noise(5, *shape)
    for ladder in (THUMBNAILS, LARGE):
        found, rung = encode_all(image_reader(images, 5), range(5), ladder, most_bytes=1e6)
        assert rung.quality is None
        for image, one in zip(images, found, strict=True):
            pixels = np.asarray(decoded(one).convert("L" if shape[2] == 1 else "RGB"))
            np.testing.assert_array_equal(pixels.reshape(shape), image)


def test_of_two_formats_without_loss_the_smaller_is_taken():
    flat, spotted = np.zeros((28, 28), np.uint8), noise(1, 28, 28)[0]
    for image in (flat, spotted):
        sizes = []
        for kind, options in (("PNG", {"optimize": True}), ("WEBP", {"lossless": True})):
            content = io.BytesIO()
            Image.fromarray(image).save(content, kind, **options)
            sizes.append(content.tell())
        assert len(base64.b64decode(encode(image, Rung(64, None)))) == min(sizes)


@pytest.mark.parametrize("most_bytes", [1e6, 1e5, 3e4])
def test_pictures_keep_to_the_budget(most_bytes):
    images = noise(40, 100, 80, 3)  # noise is the worst that can come
    found, rung = encode_all(image_reader(images, 40), range(40), THUMBNAILS, most_bytes=most_bytes)
    assert sum(map(len, found)) <= most_bytes
    assert decoded(found[0]).size == tuple(
        round(min(1, rung.side / 100) * side) for side in (80, 100)
    )


def test_a_larger_budget_never_makes_pictures_worse():
    reader = image_reader(noise(20, 120, 120, 3), 20)
    rungs = [
        THUMBNAILS.index(encode_all(reader, range(20), THUMBNAILS, most_bytes=budget)[1])
        for budget in (1e4, 3e4, 1e5, 3e5, 1e6)
    ]
    assert rungs == sorted(rungs, reverse=True)
    assert rungs[0] > rungs[-1]


def test_a_sample_that_misleads_does_not_break_the_budget():
    images = np.zeros((200, 100, 100, 3), np.uint8)
    images[1::4] = noise(50, 100, 100, 3)  # Every fourth is looked at, and these are black.
    found, _ = encode_all(image_reader(images, 200), range(200), THUMBNAILS, most_bytes=2e5)
    assert sum(map(len, found)) <= 2e5


def test_photographs_are_not_held_at_full_size():
    def photograph(row):
        return np.full((1500, 2000, 3), row, np.uint8)  # 9 MB

    tracemalloc.start()
    encode_all(image_reader(photograph, 50), range(50), THUMBNAILS, most_bytes=1e6)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 60e6  # The photographs together have 450 MB.


def test_pictures_are_never_enlarged():
    assert decoded(encode(noise(1, 40, 50, 3)[0], Rung(512, 85))).size == (50, 40)


def test_a_map_is_clear_at_its_least_and_crimson_at_its_peak():
    values = np.zeros((9, 12))
    values[2, 9] = 7.5
    picture = np.asarray(decoded(encode_map(values)).convert("RGBA")).astype(int)
    assert picture.shape[:2] == (96, 128)
    peak = np.unravel_index(picture[..., 3].argmax(), picture.shape[:2])
    assert (peak[0] * 9 // 96, peak[1] * 12 // 128) == (2, 9)
    red, green, blue, alpha = picture[26, 101]  # the middle of that cell
    assert alpha > 200
    assert red > 150 > max(green, blue)
    assert picture[64:, :64, 3].max() == 0


def test_a_flat_map_is_clear_all_over():
    assert np.asarray(decoded(encode_map(np.ones((4, 4)))).convert("RGBA"))[..., 3].max() == 0


@pytest.mark.parametrize(
    ("images", "received"),
    [
        (np.zeros((3, 8, 8, 1), np.uint8), r"shape=\(3, 8, 8, 1\)"),
        (np.zeros((2, 8, 8), np.uint8), r"shape=\(2, 8, 8\)"),
        ([1, 2], "list"),
        (np.zeros((2, 8, 8, 1)), r"shape=\(8, 8, 1\), dtype=float64 for row 0"),
        (lambda row: np.zeros((8, 8, 4), np.uint8), r"shape=\(8, 8, 4\), dtype=uint8 for row 0"),
        (lambda row: None, "NoneType for row 0"),
    ],
)
def test_what_is_no_image_is_refused(images, received):
    with pytest.raises(DataError, match=f"images must .* Received: {received}"):
        image_reader(images, 2)(0)


def test_a_map_with_nan_is_refused():
    with pytest.raises(DataError, match="where must hold finite maps"):
        encode_map(np.full((2, 2), np.nan))


def test_a_url_says_which_format_it_is():
    image = noise(1, 8, 8)[0]
    for kind in ("png", "webp", "jpeg"):
        content = io.BytesIO()
        Image.fromarray(image).save(content, kind)
        url = as_url(base64.b64encode(content.getvalue()).decode())
        assert url.startswith(f"data:image/{kind};base64,")
