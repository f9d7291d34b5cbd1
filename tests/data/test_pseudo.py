import numpy as np
import pytest

from tfbnood.data import load, rotate
from tfbnood.data.pseudo import ALL_KINDS, KINDS, pseudo_outliers
from tfbnood.errors import DataError


@pytest.fixture(scope="module")
def images():
    return load("digits").test[:50]


def test_every_kind_is_another_image_of_the_same_shape(images):
    made = pseudo_outliers(images, seed=0, kinds=ALL_KINDS)
    assert tuple(made) == ALL_KINDS
    assert tuple(pseudo_outliers(images, seed=0)) == KINDS == ALL_KINDS[:10]
    assert " ".join(KINDS) == "flip patches noise blend dark bright blur sharp zoom mosaic"
    assert " ".join(ALL_KINDS[10:]) == "halves shift jitter flat stretch pixels"
    assert list(pseudo_outliers(images, seed=0, kinds=("blur", "flip"))) == ["blur", "flip"]
    for spoiled in made.values():
        assert spoiled.shape == images.shape
        assert spoiled.dtype == np.uint8
        assert (spoiled != images).any(axis=(1, 2, 3)).mean() > 0.9


def test_same_seed_same_images(images):
    one, again, other = (pseudo_outliers(images, seed=seed, kinds=ALL_KINDS) for seed in (3, 3, 4))
    for kind in ALL_KINDS:
        np.testing.assert_array_equal(one[kind], again[kind])
    for kind in ("patches", "noise", "shift", "jitter"):
        assert (one[kind] != other[kind]).any()


def test_quarters_are_all_there_and_none_where_it_was():
    image = np.repeat(np.repeat([[1, 2], [3, 4]], 4, axis=0), 4, axis=1).astype(np.uint8) * 50
    shuffled = pseudo_outliers(np.stack([image[..., None]] * 9), seed=1)["patches"]
    for one in shuffled[..., 0]:
        corners = one[[0, 0, -1, -1], [0, -1, 0, -1]]
        assert sorted(corners) == [50, 100, 150, 200]
        assert (corners != [50, 100, 150, 200]).all()


def test_what_is_done_is_what_is_said(images):
    made = pseudo_outliers(images, seed=0)
    np.testing.assert_array_equal(made["flip"], images[:, ::-1])
    expected = np.rint((images.astype(float) + np.roll(images, 1, axis=0)) / 2)
    assert np.abs(made["blend"] - expected).max() <= 1
    assert abs((made["noise"].astype(float) - images)[images == 128].std() - 10) < 3
    assert made["dark"].mean() < images.mean() < made["bright"].mean()
    inner = np.mean(
        [images[:, 1 + a : 7 + a, 1 + b : 7 + b] for a in (-1, 0, 1) for b in (-1, 0, 1)], axis=0
    )
    assert np.abs(made["blur"][:, 1:7, 1:7] - inner).max() <= 0.51
    sharp = np.clip(2.0 * images[:, 1:7, 1:7] - inner, 0, 255)
    assert np.abs(made["sharp"][:, 1:7, 1:7] - sharp).max() <= 0.51
    # Inside the middle quarter's pixel of 2×2, a mean over 3×3 weighs its own value with 4 of 9.
    flat = np.full_like(images, 90)
    np.testing.assert_array_equal(pseudo_outliers(flat, seed=0)["zoom"], flat)
    assert made["zoom"].mean() > images.mean()  # Digits are in the middle.


def test_a_mosaic_has_four_small_images(images):
    mosaic = pseudo_outliers(images, seed=0)["mosaic"].astype(float)
    small = images.reshape(50, 4, 2, 4, 2, 1).mean(axis=(2, 4))
    corners = mosaic[:, :4, :4], mosaic[:, :4, 4:], mosaic[:, 4:, :4], mosaic[:, 4:, 4:]
    for shift, corner in enumerate(corners):
        assert np.abs(corner - np.roll(small, shift, axis=0)).max() <= 0.51


def test_the_other_kinds_are_what_is_said(images):
    made = pseudo_outliers(images, seed=0, kinds=ALL_KINDS)
    np.testing.assert_array_equal(made["halves"][:, :, :4], images[:, :, :4])
    np.testing.assert_array_equal(made["halves"][1:, :, 4:], images[:-1, :, 4:])
    flat = images / 2 + images.mean(axis=(1, 2, 3), keepdims=True) / 2
    assert np.abs(made["flat"] - flat).max() <= 0.51
    squares = images.reshape(50, 4, 2, 4, 2, 1).mean(axis=(2, 4))
    assert np.abs(made["pixels"] - squares.repeat(2, axis=1).repeat(2, axis=2)).max() <= 0.51
    # Of the columns 2 to 5 each is there twice, then the mean of three neighbours is taken.
    columns = images[:, :, [2, 2, 2, 3, 3, 4, 4, 5, 5, 5]].astype(float)
    stretched = (columns[:, :, :-2] + columns[:, :, 1:-1] + columns[:, :, 2:]) / 3
    assert np.abs(made["stretch"] - stretched).max() <= 0.51


def test_shifts_go_in_all_four_directions(images):
    shifted = pseudo_outliers(images, seed=0, kinds=("shift",))["shift"]
    directions = (
        (shifted[:, :-2] == images[:, 2:]),
        (shifted[:, 2:] == images[:, :-2]),
        (shifted[:, :, :-2] == images[:, :, 2:]),
        (shifted[:, :, 2:] == images[:, :, :-2]),
    )
    found = np.stack([same.all(axis=(1, 2, 3)) for same in directions])
    assert found.any(axis=0).all()
    assert found.any(axis=1).all()


def test_jittered_pixels_come_from_beside_them():
    places = np.arange(100, dtype=np.uint8).reshape(1, 10, 10, 1).repeat(4, axis=0)
    jittered = pseudo_outliers(places, seed=0, kinds=("jitter",))["jitter"].astype(int)
    moved = np.stack(np.divmod(jittered, 10)) - np.stack(np.divmod(places.astype(int), 10))
    assert np.abs(moved).max() == 1
    # A third of the pixels stays in its row; at the border, what would come from outside does too.
    assert abs((moved[0, :, 1:-1] == 0).mean() - 1 / 3) < 0.1


def test_odd_and_small_sides_keep_their_shape():
    for sides in ((9, 7), (3, 2), (1, 1)):
        odd = np.random.RandomState(0).randint(0, 256, (5, *sides, 3), np.uint8)
        for spoiled in pseudo_outliers(odd, seed=0, kinds=ALL_KINDS).values():
            assert spoiled.shape == odd.shape


def test_rotations_are_not_among_them(images):
    quarter_turns = [rotate(images, (angle, angle), seed=0) for angle in (90, 180, 270)]
    for spoiled in pseudo_outliers(images, seed=0, kinds=ALL_KINDS).values():
        for turned in quarter_turns:
            assert (spoiled != turned).any()


def test_bad_images_are_refused(images):
    with pytest.raises(DataError, match="0–255, not 0–1"):
        pseudo_outliers(images / 255.0, seed=0)
