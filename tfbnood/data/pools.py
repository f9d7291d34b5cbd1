"""Outliers and contaminated pools, made from given images."""

import importlib.resources
import os
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.images import as_images
from tfbnood.errors import DataError

if TYPE_CHECKING:
    from tfbnood._core.images import Images
    from tfbnood.data.sets import Dataset

__all__ = ["MADE_OUTLIERS", "mix", "mix_rows", "outlier_set", "photo_patches", "rotate"]

# Outliers that `outlier_set` makes itself, besides the data sets it loads.
MADE_OUTLIERS = ("rotation", "rotation-bilinear", "inverted", "photos")
INTERPOLATIONS = ("nearest", "bilinear")


def outlier_set(
    name: str, inliers: "Dataset", *, seed: int, data_dir: str | os.PathLike[str] | None = None
) -> np.ndarray:
    """Outliers by name: made from the inliers' test images, cut from photographs, or another data set's test images.

    Args:
        name: `rotation` (nearest neighbours), `rotation-bilinear`, `inverted` (made from the inliers), `photos`
            (scikit-learn's), or the name of a data set.
        inliers: the in-distribution data set.
        seed: of the random choices.
        data_dir: as for `tfbnood.data.load`.

    Returns:
        uint8 `[n, height, width, channels]`.

    Example:
        >>> bool((outlier_set("inverted", x, seed=0) == 255 - x.test).all())
        True
    """
    from tfbnood.data.sets import load  # which imports this module

    if name == "rotation":
        return rotate(inliers.test, seed=seed)
    if name == "rotation-bilinear":
        return rotate(inliers.test, seed=seed, interpolation="bilinear")
    if name == "inverted":
        return 255 - inliers.test
    if name == "photos":
        return photo_patches(1000, inliers.image_shape, seed=seed)
    return load(name, data_dir=data_dir).test


def rotate(
    images: Any,
    degrees: tuple[float, float] = (90, 270),
    *,
    seed: int,
    interpolation: str = "nearest",
) -> np.ndarray:
    """Rotates every image about its centre by its own random angle.

    Pixels from outside the image are zero; such corners are themselves a cue, unless the background is black, too.

    Args:
        images: `[n, height, width, channels]`, values in 0–255.
        degrees: the range of angles, drawn uniformly, counter-clockwise. Defaults to (90, 270).
        seed: of the angles; the same seed gives the same angles.
        interpolation: `nearest` (default) takes the nearest pixel, as Pillow and torchvision do by default;
            `bilinear` averages four pixels. That blurs, and blurred images are likelier under most models.

    Returns:
        uint8, of the shape of `images`.

    Example:
        >>> bool((rotate(x.test, (90, 90), seed=0) == np.rot90(x.test, axes=(1, 2))).all())
        True
    """
    images = as_images(images)
    if interpolation not in INTERPOLATIONS:
        raise DataError(
            f"interpolation must be one of {', '.join(INTERPOLATIONS)}. Received: interpolation={interpolation!r}"
        )
    low, high = _check_range(degrees)
    angles = np.deg2rad(_random(seed).uniform(low, high, len(images)))
    rotated = np.empty_like(images)
    # In chunks: the coordinates of 60,000 images at once would take gigabytes.
    for start in range(0, len(images), 256):
        piece = slice(start, start + 256)
        rotated[piece] = _rotate(images[piece], angles[piece], interpolation)
    return rotated


def mix(
    inliers: "Images", outliers: "Images", fraction: float, *, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws a shuffled pool in which `fraction` of the images are outliers.

    No image is repeated. All outliers are used if there are enough inliers, otherwise all inliers; the number of the
    others is rounded, so that the fraction is met to within one image.

    Args:
        inliers: `[n, height, width, channels]`, values in 0–255.
        outliers: `[m, height, width, channels]`, of the same image shape.
        fraction: in (0, 1]; 1 gives the outliers alone.
        seed: of the choice and the order of images.

    Returns:
        The images, uint8 `[k, height, width, channels]`, and a boolean vector `[k]` that is True
        for outliers.

    Example:
        >>> images, is_outlier = mix(x.test, 255 - x.test[:20], 0.1, seed=0)
        >>> len(images), int(is_outlier.sum())
        (200, 20)
    """
    inliers = as_images(inliers, name="inliers")
    outliers = as_images(outliers, inliers.shape[1:], name="outliers")
    rows = mix_rows(len(inliers), len(outliers), fraction, seed=seed)
    is_outlier = rows >= len(inliers)
    pool = np.empty((len(rows), *inliers.shape[1:]), np.uint8)
    pool[~is_outlier] = inliers[rows[~is_outlier]]
    pool[is_outlier] = outliers[rows[is_outlier] - len(inliers)]
    return pool, is_outlier


def mix_rows(inliers: int, outliers: int, fraction: float, *, seed: int) -> np.ndarray:
    """The rows that `mix` draws from the inliers followed by the outliers, in the pool's order."""
    if isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < fraction <= 1:
        raise DataError(f"fraction must lie in (0, 1]. Received: fraction={fraction!r}")
    count_out = outliers
    count_in = round(count_out * (1 - fraction) / fraction)
    if count_in > inliers:
        count_in = inliers
        count_out = round(count_in * fraction / (1 - fraction))
    if count_out == 0 or (count_in == 0 and fraction < 1):
        raise DataError(
            "inliers and outliers must be enough for one image of each kind at this fraction. "
            f"Received: fraction={fraction}, {inliers} inliers, {outliers} outliers"
        )
    random = _random(seed)
    kept = random.permutation(inliers)[:count_in]
    added = inliers + random.permutation(outliers)[:count_out]
    return random.permutation(np.concatenate([kept, added]))


def photo_patches(n: int, image_shape: tuple[int, int, int], *, seed: int) -> np.ndarray:
    """Cuts random squares from scikit-learn's two photographs: outliers that are always available.

    Args:
        n: number of patches.
        image_shape: `(height, width, channels)`, with 1 channel (grey) or 3 (colour). A patch of the
            photograph is four times as high and wide, and averaged down.
        seed: of the places.

    Returns:
        uint8 `[n, height, width, channels]`.

    Example:
        >>> photo_patches(10, (8, 8, 1), seed=0).shape
        (10, 8, 8, 1)
    """
    # Read as files: scikit-learn's own reader needs Pillow.
    import tensorflow as tf

    height, width, channels = image_shape
    files = importlib.resources.files("sklearn.datasets.images")
    photos = [
        tf.io.decode_jpeg((files / name).read_bytes(), channels=channels).numpy()
        for name in ("china.jpg", "flower.jpg")
    ]
    random = _random(seed)
    patches = np.empty((n, *image_shape), np.uint8)
    for index in range(n):
        photo = photos[random.randint(len(photos))]
        top = random.randint(photo.shape[0] - 4 * height + 1)
        left = random.randint(photo.shape[1] - 4 * width + 1)
        square = photo[top : top + 4 * height, left : left + 4 * width]
        blocks = square.reshape(height, 4, width, 4, channels)
        patches[index] = np.rint(blocks.mean(axis=(1, 3)))
    return patches


def _rotate(images: np.ndarray, angles: np.ndarray, interpolation: str) -> np.ndarray:
    n, height, width, _ = images.shape
    # A black frame of one pixel, so that outside neighbours can be looked up like any other.
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = (np.arange(height) - (height - 1) / 2)[None, :, None]
    x = (np.arange(width) - (width - 1) / 2)[None, None, :]
    cos, sin = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    source_y = np.clip(cos * y + sin * x + (height - 1) / 2, -1, height) + 1
    source_x = np.clip(cos * x - sin * y + (width - 1) / 2, -1, width) + 1
    each = np.arange(n)[:, None, None]
    if interpolation == "nearest":
        return framed[each, np.rint(source_y).astype(np.intp), np.rint(source_x).astype(np.intp)]
    top = np.minimum(source_y.astype(np.intp), height)
    left = np.minimum(source_x.astype(np.intp), width)
    down, right = (source_y - top)[..., None], (source_x - left)[..., None]
    upper = framed[each, top, left] * (1 - right) + framed[each, top, left + 1] * right
    lower = framed[each, top + 1, left] * (1 - right) + framed[each, top + 1, left + 1] * right
    return np.rint(upper * (1 - down) + lower * down).astype(np.uint8)


def _random(seed: int) -> np.random.RandomState:
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < 2**32:
        raise DataError(f"seed must be an integer in [0, 2**32). Received: seed={seed!r}")
    return np.random.RandomState(int(seed))


def _check_range(degrees: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(limit) for limit in degrees)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not (np.isfinite([low, high]).all() and low <= high):
        raise DataError(
            f"degrees must be (low, high) with low ≤ high. Received: degrees={degrees!r}"
        )
    return low, high
