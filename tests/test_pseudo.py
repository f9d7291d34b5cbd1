import numpy as np
import pytest

from tfbnood.data import load, rotate
from tfbnood.errors import DataError
from tfbnood.pseudo import pseudo_outliers


@pytest.fixture(scope="module")
def images():
    return load("digits").test[:50]


def test_every_kind_is_another_image_of_the_same_shape(images):
    made = pseudo_outliers(images, seed=0)
    assert set(made) == {"flip", "patches", "noise", "blend", "dark", "bright", "blur"}
    for spoiled in made.values():
        assert spoiled.shape == images.shape
        assert spoiled.dtype == np.uint8
        assert (spoiled != images).any(axis=(1, 2, 3)).mean() > 0.9


def test_same_seed_same_images(images):
    one, again, other = (pseudo_outliers(images, seed=seed) for seed in (3, 3, 4))
    for kind in one:
        np.testing.assert_array_equal(one[kind], again[kind])
    assert (one["patches"] != other["patches"]).any()
    assert (one["noise"] != other["noise"]).any()


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


def test_rotations_are_not_among_them(images):
    quarter_turns = [rotate(images, (angle, angle), seed=0) for angle in (90, 180, 270)]
    for spoiled in pseudo_outliers(images, seed=0).values():
        for turned in quarter_turns:
            assert (spoiled != turned).any()


def test_bad_images_are_refused(images):
    with pytest.raises(DataError, match="0–255, not 0–1"):
        pseudo_outliers(images / 255.0, seed=0)
