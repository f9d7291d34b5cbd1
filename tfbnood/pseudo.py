"""Outliers made of in-distribution images alone: to choose settings on, so that no real outlier is ever looked at."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfbnood.images import as_images

__all__ = ["KINDS", "pseudo_outliers"]

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


def pseudo_outliers(
    images: Any, *, seed: int, kinds: Sequence[str] = KINDS
) -> dict[str, np.ndarray]:
    """Spoils in-distribution images in several ways that keep most of what they look like.

    Rotations are not among them: they are a test set of this field.

    Args:
        images: `[n, height, width, channels]` in 0–255, n ≥ 2.
        seed: of every random choice.
        kinds: which of them. Defaults to all.

    Returns:
        uint8 images by the name of what was done, each of the shape of `images`: `flip` (upside down), `patches` (the
        four quarters in another order), `noise` (Gaussian, 10 grey levels), `blend` (the mean of two images), `dark`
        and `bright` (x² and √x on 0–1), `blur` (every pixel is the mean of a 3×3 square), `sharp` (twice the image
        minus its blur), `zoom` (the middle quarter at twice the size), `mosaic` (four images at half the size). The
        last three and `blur` come in pairs: what makes images simpler and what makes them richer.

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
        "patches": lambda: _shuffled_quarters(unit, random),
        "noise": lambda: unit + random.normal(0, 10 / 255, unit.shape),
        "blend": lambda: (unit + np.roll(unit, 1, axis=0)) / 2,
        "dark": lambda: unit**2,
        "bright": lambda: np.sqrt(unit),
        "blur": lambda: _blurred(unit),
        "sharp": lambda: 2 * unit - _blurred(unit),
        "zoom": lambda: _zoomed(unit),
        "mosaic": lambda: _mosaic(unit),
    }
    return {kind: np.rint(255 * np.clip(ways[kind](), 0, 1)).astype(np.uint8) for kind in kinds}


def _shuffled_quarters(images: np.ndarray, random: np.random.RandomState) -> np.ndarray:
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


def _blurred(images: np.ndarray) -> np.ndarray:
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    height, width = images.shape[1:3]
    return sum(
        padded[:, top : top + height, left : left + width] for top in range(3) for left in range(3)
    ) / np.float32(9)


def _zoomed(images: np.ndarray) -> np.ndarray:
    height, width = images.shape[1:3]
    top, left = height // 4, width // 4
    # One line more than needed where a side is odd; cut off at the end.
    middle = images[:, top : top + -(-height // 2), left : left + -(-width // 2)]
    return _blurred(middle.repeat(2, axis=1).repeat(2, axis=2))[:, :height, :width]


def _mosaic(images: np.ndarray) -> np.ndarray:
    height, width = images.shape[1:3]
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    small = (even[:, ::2, ::2] + even[:, 1::2, ::2] + even[:, ::2, 1::2] + even[:, 1::2, 1::2]) / 4
    above = np.concatenate([small, np.roll(small, 1, axis=0)], axis=2)
    below = np.concatenate([np.roll(small, 2, axis=0), np.roll(small, 3, axis=0)], axis=2)
    made = images.copy()  # An odd side keeps its last line.
    made[:, : height // 2 * 2, : width // 2 * 2] = np.concatenate([above, below], axis=1)
    return made
