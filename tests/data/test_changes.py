import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.special import ive

from tfbnood._core.images import as_images
from tfbnood._core.sampling import shuffled_halves
from tfbnood.data import changes, photo_patches
from tfbnood.data.changes import CHANGES, change, check_changes, mix_changes
from tfbnood.errors import DataError

RANDOM = tuple(kind for kind in CHANGES if kind != "mirror")


@pytest.fixture(scope="module")
def photos():
    return photo_patches(60, (32, 32, 3), seed=0)


def noise_images(count, height, width, channels, seed=0):
    shape = (count, height, width, channels)
    return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)


def differences(changed, images):
    """The mean absolute difference of each image."""
    return np.abs(changed.astype(float) - images).mean(axis=(1, 2, 3))


def test_importing_the_names_imports_neither_tensorflow_nor_pillow():
    code = (
        "import sys, tfbnood.data.changes as c; c.check_changes(c.CHANGES);"
        "assert not {'tensorflow', 'keras', 'PIL', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_names_are_those_of_the_documentation():
    assert " ".join(CHANGES) == "jpeg resize brightness contrast blur noise shift mirror"
    assert all(f"- `{kind}`:" in change.__doc__ for kind in CHANGES)


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_a_function_of_images_and_seed(photos, kind):
    before = photos.copy()
    np.random.seed(0)  # A global seed must not matter.
    one = change(photos, kind, seed=3)
    np.random.seed(1)
    np.testing.assert_array_equal(one, change(photos, kind, seed=3))
    np.testing.assert_array_equal(photos, before)
    assert not np.shares_memory(one, photos)
    if kind in RANDOM:
        assert (one != change(photos, kind, seed=4)).any()


@pytest.mark.parametrize("kind", CHANGES)
def test_images_after_it_do_not_change_what_happens_to_an_image(photos, kind):
    np.testing.assert_array_equal(
        change(photos, kind, seed=5)[:7], change(photos[:7], kind, seed=5)
    )


@pytest.mark.parametrize("kind", CHANGES)
def test_nearly_every_image_is_changed_but_stays_near(photos, kind):
    changed = change(photos, kind, seed=0)
    assert changed.dtype == np.uint8
    assert changed.shape == photos.shape
    assert (changed != photos).any(axis=(1, 2, 3)).mean() > 0.85
    if kind != "mirror":
        strangers = differences(np.roll(photos, 1, axis=0), photos)
        assert np.median(differences(changed, photos)) < 0.5 * np.median(strangers)


@pytest.mark.parametrize("kind", RANDOM)
def test_every_image_has_its_own_strength(photos, kind):
    same = np.repeat(photos[:1], 40, axis=0)
    changed = change(same, kind, seed=0)
    # With one pixel to each side there are eight shifts.
    assert len(np.unique(changed.reshape(40, -1), axis=0)) >= (8 if kind == "shift" else 20)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_what_tensorflow_makes_at_qualities_from_50_to_95(channels):
    import tensorflow as tf

    images = photo_patches(100, (17, 24, channels), seed=0)
    qualities = np.random.RandomState(2).randint(50, 96, size=100)
    assert qualities.min() < 53
    assert qualities.max() > 92
    for image, changed, quality in zip(
        images, change(images, "jpeg", seed=2), qualities, strict=True
    ):
        encoded = tf.io.encode_jpeg(image, quality=int(quality), chroma_downsampling=True)
        expected = tf.io.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE").numpy()
        assert np.abs(expected.astype(int) - changed).max() <= 1


def test_jpeg_keeps_flat_images_and_not_noise():
    colours = np.random.RandomState(0).randint(2, 256, (30, 1, 1, 3)).astype(np.uint8)
    flat = np.tile(colours, (1, 16, 16, 1))
    assert np.abs(change(flat, "jpeg", seed=0).astype(int) - flat).max() <= 10
    assert differences(change(flat, "jpeg", seed=0), flat).mean() < 2
    grey = flat[..., :1]
    assert differences(change(grey, "jpeg", seed=0), grey).mean() < 2
    noise = noise_images(30, 16, 16, 3)
    assert differences(change(noise, "jpeg", seed=0), noise).min() > 5


def test_resizing_keeps_gradients_and_takes_the_finest_detail():
    ramp = np.linspace(20, 235, 32)
    gradient = np.tile(np.rint((ramp[:, None] + ramp) / 2)[None, ..., None], (40, 1, 1, 3))
    changed = change(gradient, "resize", seed=0)
    assert np.abs(changed - gradient)[:, 8:-8, 8:-8].max() <= 2
    assert differences(changed, gradient).max() < 2
    flat = np.full((40, 9, 12, 1), 77, np.uint8)
    np.testing.assert_array_equal(change(flat, "resize", seed=0), flat)
    noise = noise_images(40, 32, 32, 1)
    deviations = change(noise, "resize", seed=0).std(axis=(1, 2, 3)) / noise.std(axis=(1, 2, 3))
    assert deviations.max() < 1.05
    assert deviations.min() < 0.6


def area_means(image, width, height):
    """Every pixel as many times as there are new ones, then the means of as many as there were old ones."""
    old_height, old_width, channels = image.shape
    tall = image.repeat(height, axis=0).reshape(height, old_height, old_width, channels).mean(1)
    wide = tall.repeat(width, axis=1).reshape(height, width, old_width, channels).mean(2)
    return np.rint(wide).astype(np.uint8)


def resized(image, size, method):
    if method == "area":
        return area_means(image, *size)
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling[method]))


@pytest.mark.parametrize(("side", "smallest"), [(20, 20), (32, 24), (40, 24), (64, 32), (128, 64)])
def test_resizing_goes_down_to_half_and_never_below_24_pixels(monkeypatch, side, smallest):
    sides = []
    scaled = changes._scaled

    def noted(image, height, width, method):
        sides.append(height)
        return scaled(image, height, width, method)

    monkeypatch.setattr(changes, "_scaled", noted)
    change(noise_images(200, side, side, 1), "resize", seed=0)
    there = sides[::2]
    assert smallest <= min(there) <= smallest + max(1, side // 10)
    assert 1.9 * side <= max(there) <= 2 * side


def test_small_images_are_resized_up_and_back_with_common_filters():
    images = noise_images(60, 9, 12, 3)
    enlarging = ["BILINEAR", "BICUBIC", "LANCZOS"]
    pairs = list(itertools.product(enlarging, [*enlarging, "area"]))
    sizes = {(round(f * 12), round(f * 9)) for f in np.geomspace(1, 2, 1000)} - {(12, 9)}
    used = set()
    for image, changed in zip(images, change(images, "resize", seed=0), strict=True):
        if (changed == image).all():  # so small a factor that the size was the same
            continue
        found = []
        for size, (up, down) in itertools.product(sizes, pairs):
            there, back = (up, down) if size > (12, 9) else (down, up)
            expected = resized(resized(image, size, there), (12, 9), back)
            if (
                np.abs(expected.astype(int) - changed).max() <= 2
            ):  # Halves may be rounded up or down.
                found.append((size, up, down))
        assert found
        used |= set(found if len(found) == 1 else ())
    used_sizes, used_up, used_down = map(set, zip(*used, strict=True))
    assert max(used_sizes) > (18, 14)
    assert used_up == set(enlarging)
    assert used_down == {*enlarging, "area"}


def test_brightness_multiplies_by_08_to_12():
    flat = np.full((300, 2, 3, 1), 100, np.uint8)
    changed = change(flat, "brightness", seed=0)
    assert (changed == changed[:, :1, :1]).all()
    levels = changed[:, 0, 0, 0]
    assert 80 <= levels.min() < 82
    assert 118 < levels.max() <= 120
    assert abs(levels.mean() - 100) < 3
    images = noise_images(20, 4, 4, 3)
    factors = np.random.RandomState(7).uniform(0.8, 1.2, 20)[:, None, None, None]
    expected = np.minimum(255, images * factors)
    assert np.abs(change(images, "brightness", seed=7) - expected).max() <= 0.51
    white = np.full((50, 4, 4, 3), 250, np.uint8)
    assert change(white, "brightness", seed=0).max() == 255  # clipped, not wrapped


def test_contrast_keeps_the_mean_and_scales_the_deviation_by_08_to_12():
    images = noise_images(200, 8, 8, 3) // 2 + 64  # Nothing is clipped.
    changed = change(images, "contrast", seed=0)
    axes = (1, 2, 3)
    np.testing.assert_allclose(changed.mean(axis=axes), images.mean(axis=axes), atol=0.2)
    ratios = changed.std(axis=axes) / images.std(axis=axes)
    assert 0.79 < ratios.min() < 0.82
    assert 1.18 < ratios.max() < 1.21
    factors = np.random.RandomState(0).uniform(0.8, 1.2, 200)
    np.testing.assert_allclose(ratios, factors, atol=0.01)


def test_blur_keeps_the_mean_and_lowers_the_variance():
    images = noise_images(60, 16, 24, 3)
    blurred = change(images, "blur", seed=0)
    np.testing.assert_allclose(
        blurred.mean(axis=(1, 2)), images.mean(axis=(1, 2)), atol=0.15
    )  # in each channel
    assert (blurred.std(axis=(1, 2, 3)) <= images.std(axis=(1, 2, 3))).all()
    assert np.median(blurred.std(axis=(1, 2, 3)) / images.std(axis=(1, 2, 3))) < 0.85


@pytest.mark.parametrize(("side", "most"), [(8, 0.5), (32, 1), (128, 2)])
def test_blur_goes_up_to_the_square_root_of_a_32nd_of_the_side(side, most):
    # The shorter side counts.
    line = np.zeros((100, side, side + 9, 1), np.uint8)
    middle = (side + 9) // 2
    line[:, :, middle] = 255
    profile = change(line, "blur", seed=0)[:, side // 2, :, 0] / 255
    sigmas = np.random.RandomState(0).uniform(0, most, 100)
    assert sigmas.max() > 0.95 * most
    # The discrete Gaussian: a random walk of variance σ² in continuous time.
    weights = ive(np.abs(np.arange(side + 9) - middle), sigmas[:, None] ** 2)
    assert np.abs(profile - weights).max() < 0.0021  # half a grey level


def test_noise_is_gaussian_of_up_to_5_grey_levels():
    flat = np.full((100, 32, 32, 3), 128, np.uint8)
    noise = change(flat, "noise", seed=0).astype(float) - 128
    deviations = noise.std(axis=(1, 2, 3))
    assert 4.7 < deviations.max() < 5.1
    assert deviations.min() < 0.4
    assert abs(deviations.mean() - 2.5) < 0.4
    assert np.abs(noise.mean(axis=(1, 2, 3))).max() < 0.4
    strongest = noise[deviations.argmax()]
    assert abs((np.abs(strongest) < 5).mean() - 0.64) < 0.03  # |z| < 0.9 of a Gaussian
    red, green = strongest[..., 0].ravel(), strongest[..., 1].ravel()
    assert abs(np.corrcoef(red, green)[0, 1]) < 0.1


@pytest.mark.parametrize(("height", "width"), [(8, 8), (28, 60), (128, 75)])
def test_shifts_move_by_whole_pixels_and_replicate_edges(height, width):
    images = noise_images(150, height, width, 1)
    down_most, right_most = max(1, int(0.04 * height)), max(1, int(0.04 * width))
    padding = ((0, 0), (down_most, down_most), (right_most, right_most), (0, 0))
    padded = np.pad(images, padding, mode="edge")
    shifted = change(images, "shift", seed=0)
    offsets = list(itertools.product(range(2 * down_most + 1), range(2 * right_most + 1)))
    found = np.array(
        [
            (shifted == padded[:, top : top + height, left : left + width]).all(axis=(1, 2, 3))
            for top, left in offsets
        ]
    )
    assert (found.sum(axis=0) == 1).all()
    assert not found[offsets.index((down_most, right_most))].any()  # None stays.
    seen = [
        offset for offset, any_image in zip(offsets, found.any(axis=1), strict=True) if any_image
    ]
    assert {0, 2 * down_most} <= {top for top, _ in seen}
    assert {0, 2 * right_most} <= {left for _, left in seen}


def test_mirror_exchanges_left_and_right(photos):
    np.testing.assert_array_equal(change(photos, "mirror", seed=0), photos[:, :, ::-1])


@pytest.mark.parametrize("kind", CHANGES)
def test_nearly_black_images_come_out_as_images_that_the_package_takes(kind):
    # One spot of 2 grey levels, which a shift takes out of the image and a blur takes to 1.
    dark = np.zeros((200, 8, 8, 3), np.uint8)
    dark[:100, 0, 0] = 2
    dark[:100, 5, 5] = 1
    dark[100:, 3, 4] = 2
    changed = change(dark, kind, seed=0)
    as_images(changed)
    as_images(mix_changes(dark, (kind,), seed=0))
    if kind in ("jpeg", "resize", "blur", "shift"):
        assert (changed.max(axis=(1, 2, 3)) == 0).any()
    if kind != "jpeg":
        assert (changed.max(axis=(1, 2, 3)) > 1).any()


@pytest.mark.parametrize("kind", CHANGES)
def test_black_stays_black_but_for_noise(kind):
    black = np.zeros((20, 8, 8, 1), np.uint8)
    if kind != "noise":
        np.testing.assert_array_equal(change(black, kind, seed=0), black)
    assert change(black, kind, seed=0).max() < 30


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(
    kind=st.sampled_from(CHANGES),
    count=st.integers(1, 4),
    height=st.integers(1, 19),
    width=st.integers(1, 19),
    channels=st.sampled_from([1, 3]),
    brightest=st.sampled_from([0, 2, 3, 60, 255]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_images_keep_shape_type_and_range(
    kind, count, height, width, channels, brightest, seed
):
    images = noise_images(count, height, width, channels, seed)
    images = (images.astype(int) % (brightest + 1)).astype(np.uint8)
    images[images.max(axis=(1, 2, 3)) == 1] = 0
    for changed in (change(images, kind, seed=seed), mix_changes(images, (kind,), seed=seed)):
        assert changed.shape == images.shape
        assert changed.dtype == np.uint8
        as_images(changed)
        if kind in ("shift", "mirror"):  # No value that was not there.
            assert set(np.unique(changed)) <= {0, *np.unique(images)}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("side", [8, 128])
def test_small_and_large_images_work(kind, side):
    images = photo_patches(3, (side // 2, side, 3), seed=0)
    assert change(images, kind, seed=0).shape == images.shape


def test_exactly_half_of_a_mix_stays_in_its_place(photos):
    for count in (60, 59):
        images = photos[:count]
        mixed = mix_changes(images, ("mirror", "shift"), seed=0)
        same = (mixed == images).all(axis=(1, 2, 3))
        assert same.sum() == count - count // 2
        # Changed images are where they were, too.
        mirrored = (mixed == images[:, :, ::-1]).all(axis=(1, 2, 3))
        assert 0.25 * count // 2 < mirrored.sum() < 0.75 * count // 2
        moved = ~same & ~mirrored
        assert differences(mixed, images)[moved].max() < 40
    assert 10 < np.flatnonzero(same).mean() < 50  # not the first half


def test_a_mix_draws_its_kinds_uniformly():
    flat = np.full((4000, 4, 5, 1), 100, np.uint8)
    flat[:, :, 0] = 200
    mixed = mix_changes(flat, ("mirror", "brightness", "blur", "noise"), seed=1)
    assert abs((mixed == flat[:, :, ::-1]).all(axis=(1, 2, 3)).sum() - 500) < 80


def test_a_mix_is_a_function_of_images_kinds_and_seed(photos):
    before = photos.copy()
    one, again = (mix_changes(photos, CHANGES, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(photos, before)
    other = mix_changes(photos, CHANGES, seed=4)
    same = (one == photos).all(axis=(1, 2, 3))
    assert (same != (other == photos).all(axis=(1, 2, 3))).any()


def test_a_mix_of_no_kinds_and_a_mix_of_one_image_are_copies(photos):
    for images, kinds in ((photos, ()), (photos[:1], CHANGES)):
        mixed = mix_changes(images, kinds, seed=0)
        np.testing.assert_array_equal(mixed, images)
        assert not np.shares_memory(mixed, images)


def test_names_keep_their_order():
    assert check_changes(["mirror", "jpeg"]) == ("mirror", "jpeg")
    assert check_changes(CHANGES) == CHANGES
    assert check_changes(()) == ()
    (name,) = check_changes([np.str_("blur")])
    assert type(name) is str


@pytest.mark.parametrize(
    ("kinds", "sentence"),
    [
        ("jpeg", r"write a single one as tolerate=\(\"jpeg\",\)\. Received: tolerate='jpeg'"),
        ({"jpeg"}, "tolerate must be a tuple or list"),
        (None, "Received: tolerate=None"),
        (("jpeg", "rain"), "jpeg, resize, .*mirror.* Received: 'rain'"),
        ((3,), "Received: 3"),
        ((["jpeg"],), r"Received: \['jpeg'\]"),
        (("jpeg", "blur", "jpeg"), "each name once"),
    ],
)
def test_bad_names_are_refused(photos, kinds, sentence):
    with pytest.raises(DataError, match=sentence):
        check_changes(kinds)
    with pytest.raises(DataError, match=sentence):
        mix_changes(photos, kinds, seed=0)


def test_bad_arguments_of_a_change_are_refused(photos):
    with pytest.raises(DataError, match=r"kind must be one of jpeg, .* Received: kind='rain'"):
        change(photos, "rain", seed=0)
    with pytest.raises(DataError, match=r"Received: kind=\('jpeg',\)"):
        change(photos, ("jpeg",), seed=0)
    for make in (
        lambda **how: change(photos, "jpeg", **how),
        lambda **how: mix_changes(photos, (), **how),
    ):
        for seed in (-1, 0.5, True, 2**32):
            with pytest.raises(DataError, match="seed must be an integer"):
                make(seed=seed)
    with pytest.raises(DataError, match="0–255, not 0–1"):
        change(photos / 255.0, "jpeg", seed=0)
    with pytest.raises(DataError, match="0–255, not 0–1"):
        mix_changes(photos / 255.0, ("jpeg",), seed=0)


@pytest.mark.parametrize("seed", range(5))
def test_a_mix_leaves_changed_images_in_every_part_that_the_same_seed_cuts(seed):
    # An ensemble fits its members to one half and their density to the other: each must see changed images.
    images = noise_images(400, 4, 4, 1)
    changed = (mix_changes(images, ("mirror",), seed=seed) != images).any(axis=(1, 2, 3))
    first, second = shuffled_halves(changed, seed)
    assert 0.4 < first.mean() < 0.6
    assert 0.4 < second.mean() < 0.6
