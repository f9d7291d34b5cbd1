"""Outliers made from in-distribution images, to choose settings without ever looking at real outliers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfbnood._core.images import as_images

__all__ = ["ALL_KINDS", "KINDS", "pseudo_outliers"]

# Settings are chosen on these.
KINDS = (
    "flip",
    "patches",
    "noise",
    "blend",
    "dark",
    "bright",
    "blur",
    "sharp",
    "zoom",
    "mosaic",
)
# `pretext` learns all of them: the more it knows, the better it detects what it does not know.
ALL_KINDS = (*KINDS, "halves", "shift", "jitter", "flat", "stretch", "pixels")


def pseudo_outliers(
    images: Any, *, seed: int, kinds: Sequence[str] = KINDS
) -> dict[str, np.ndarray]:
    """Spoils in-distribution images in several ways that keep most of their appearance.

    Rotations are not among them: they are a test set of this field.

    Args:
        images: `[n, height, width, channels]` in 0–255, n ≥ 2.
        seed: of every random choice.
        kinds: which of `ALL_KINDS`. Defaults to `KINDS`, the first ten.

    Returns:
        uint8 images by the name of what was done, each of the shape of `images`: `flip` (upside down), `patches` (the
        four quarters in another order), `noise` (Gaussian, 10 grey levels), `blend` (the mean of two images), `dark`
        and `bright` (x² and √x on 0–1), `blur` (every pixel is the mean of a 3×3 square), `sharp` (twice the image
        minus its blur), `zoom` (the middle quarter at twice the size), `mosaic` (four images at half the size). The
        last three and `blur` come in pairs: one makes images simpler, the other richer. On request also: `halves`
        (left and right of two images), `shift` (moved by a quarter, the gap mirrored), `jitter` (every pixel is one of
        its neighbours), `flat` (half the contrast), `stretch` (the middle half at twice the width), `pixels` (squares
        of 2×2 in one colour).

    Example:
        >>> made = tfbnood.pseudo.pseudo_outliers(tfbnood.data.load("digits").test[:10], seed=0)
        >>> len(made), made["mosaic"].shape
        (10, (10, 8, 8, 1))
    """
    images = as_images(images)
    random = np.random.RandomState(seed)
    unit = images / np.float32(255)
    ways: dict[str, Callable[[], np.ndarray]] = {
        "flip": lambda: unit[:, ::-1],
        "patches": lambda: _shuffle_quarters(unit, random),
        "noise": lambda: unit + random.normal(0, 10 / 255, unit.shape),
        "blend": lambda: (unit + np.roll(unit, 1, axis=0)) / 2,
        "dark": lambda: unit**2,
        "bright": lambda: np.sqrt(unit),
        "blur": lambda: _blur(unit),
        "sharp": lambda: 2 * unit - _blur(unit),
        "zoom": lambda: _zoom(unit),
        "mosaic": lambda: _mosaic(unit),
        "halves": lambda: _halves(unit),
        "shift": lambda: _shift(unit, random),
        "jitter": lambda: _jitter(unit, random),
        "flat": lambda: (unit + unit.mean(axis=(1, 2, 3), keepdims=True)) / 2,
        "stretch": lambda: _stretch(unit),
        "pixels": lambda: _pixelate(unit),
    }
    return {kind: np.rint(255 * np.clip(ways[kind](), 0, 1)).astype(np.uint8) for kind in kinds}


def _shuffle_quarters(images: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    half_height, half_width = images.shape[1] // 2, images.shape[2] // 2
    rows = (slice(0, half_height), slice(half_height, 2 * half_height))
    columns = (slice(0, half_width), slice(half_width, 2 * half_width))
    places = [(row, column) for row in rows for column in columns]
    shuffled = images.copy()  # An odd side keeps its last line.
    for index in range(len(images)):
        # A cyclic shift after a shuffle: no quarter stays where it was.
        order = random.permutation(4)
        for target, source in zip(order, np.roll(order, 1), strict=True):
            shuffled[index][places[target]] = images[index][places[source]]
    return shuffled


def _blur(images: np.ndarray) -> np.ndarray:
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    height, width = images.shape[1:3]
    return sum(
        padded[:, top : top + height, left : left + width] for top in range(3) for left in range(3)
    ) / np.float32(9)


def _zoom(images: np.ndarray) -> np.ndarray:
    height, width = images.shape[1:3]
    top, left = height // 4, width // 4
    # One line more than needed where a side is odd; cut off at the end.
    middle = images[:, top : top + -(-height // 2), left : left + -(-width // 2)]
    return _blur(middle.repeat(2, axis=1).repeat(2, axis=2))[:, :height, :width]


def _halve(images: np.ndarray) -> np.ndarray:
    """Means of squares of 2×2; an odd side loses its last line."""
    even = images[:, : images.shape[1] // 2 * 2, : images.shape[2] // 2 * 2]
    return (even[:, ::2, ::2] + even[:, 1::2, ::2] + even[:, ::2, 1::2] + even[:, 1::2, 1::2]) / 4


def _mosaic(images: np.ndarray) -> np.ndarray:
    small = _halve(images)
    above = np.concatenate([small, np.roll(small, 1, axis=0)], axis=2)
    below = np.concatenate([np.roll(small, 2, axis=0), np.roll(small, 3, axis=0)], axis=2)
    return _restore_last_lines(images, np.concatenate([above, below], axis=1))


def _pixelate(images: np.ndarray) -> np.ndarray:
    return _restore_last_lines(images, _halve(images).repeat(2, axis=1).repeat(2, axis=2))


def _restore_last_lines(images: np.ndarray, even: np.ndarray) -> np.ndarray:
    """An odd side keeps its last line."""
    made = images.copy()
    made[:, : even.shape[1], : even.shape[2]] = even
    return made


def _halves(images: np.ndarray) -> np.ndarray:
    middle = images.shape[2] // 2
    others = np.roll(images, 1, axis=0)
    return np.concatenate([images[:, :, :middle], others[:, :, middle:]], axis=2)


def _shift(images: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    height, width = images.shape[1:3]
    down, right = height // 4, width // 4
    padded = np.pad(images, ((0, 0), (down, down), (right, right), (0, 0)), mode="reflect")
    corners = ((0, right), (2 * down, right), (down, 0), (down, 2 * right))
    shifted = np.empty_like(images)
    for index, way in enumerate(random.randint(4, size=len(images))):
        top, left = corners[way]
        shifted[index] = padded[index, top : top + height, left : left + width]
    return shifted


def _jitter(images: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    count, height, width = images.shape[:3]
    down, right = random.randint(-1, 2, size=(2, count, height, width))
    rows = np.clip(np.arange(height)[:, None] + down, 0, height - 1)
    columns = np.clip(np.arange(width) + right, 0, width - 1)
    return images[np.arange(count)[:, None, None], rows, columns]


def _stretch(images: np.ndarray) -> np.ndarray:
    width = images.shape[2]
    left = width // 4
    # One column more than needed where the width is odd; cut off at once.
    middle = images[:, :, left : left + -(-width // 2)].repeat(2, axis=2)[:, :, :width]
    padded = np.pad(middle, ((0, 0), (0, 0), (1, 1), (0, 0)), mode="edge")
    return (padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]) / np.float32(3)
