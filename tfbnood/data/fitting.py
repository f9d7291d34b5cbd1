"""Pixels fitted to a height and width: cropped, padded or stretched, and resized by area."""

import functools
import math
from typing import Any

import numpy as np

from tfbnood.errors import DataError

__all__ = ["FITS", "check_fit", "fit_pixels"]

FITS = ("crop", "pad", "stretch")

_ROWS_AT_ONCE = 256  # as float32: all rows of a 12-megapixel photograph would take 144 MB


def check_fit(fit: Any) -> None:
    """Refuses anything but one of `FITS`."""
    if fit not in FITS:
        raise DataError(f"fit must be one of {', '.join(FITS)}. Received: fit={fit!r}")


def fit_pixels(
    pixels: np.ndarray, height: int, width: int, fit: str
) -> tuple[np.ndarray, set[str]]:
    """Fits uint8 pixels `[rows, columns, channels]` to `[height, width, channels]`, as `read_image` explains.

    Returns:
        The pixels, unchanged if they already fit, and the conversions: some of "resized", "enlarged", "cropped",
        "padded" and "stretched".

    Example:
        >>> enlarged = np.kron(x.test[0], np.ones((2, 2, 1), np.uint8))
        >>> pixels, kinds = fit_pixels(enlarged, 8, 8, "crop")
        >>> bool((pixels == x.test[0]).all()), kinds
        (True, {'resized'})
    """
    rows, columns = pixels.shape[:2]
    ratio = (columns * height) / (rows * width)
    kinds = set()
    if max(ratio, 1 / ratio) > 1.01:
        kinds.add({"crop": "cropped", "pad": "padded", "stretch": "stretched"}[fit])
    inner = (height, width)
    if fit == "crop":
        kept_rows = min(rows, max(1, round(columns * height / width)))
        kept_columns = min(columns, max(1, round(rows * width / height)))
        top, left = (rows - kept_rows) // 2, (columns - kept_columns) // 2
        pixels = pixels[top : top + kept_rows, left : left + kept_columns]
    elif fit == "pad":
        inner = (
            min(height, max(1, round(height / ratio))),
            min(width, max(1, round(width * ratio))),
        )
    if pixels.shape[:2] != inner:
        kinds.add("resized")
        if pixels.shape[0] < inner[0] or pixels.shape[1] < inner[1]:
            kinds.add("enlarged")
        resampled = _resample(_resample(pixels, inner[0]).swapaxes(0, 1), inner[1]).swapaxes(0, 1)
        pixels = np.rint(resampled).astype(np.uint8)
    if inner != (height, width):
        canvas = np.zeros((height, width, pixels.shape[2]), np.uint8)
        top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
        canvas[top : top + inner[0], left : left + inner[1]] = pixels
        pixels = canvas
    return pixels, kinds


def _resample(pixels: np.ndarray, size: int) -> np.ndarray:
    """Changes the length of the first axis to `size`: by area when it shrinks, linearly when it grows."""
    old = len(pixels)
    if old == size:
        return pixels
    resampled = np.empty((size, *pixels.shape[1:]), np.float32)
    step = max(1, _ROWS_AT_ONCE * size // old)
    for start in range(0, size, step):
        stop = min(size, start + step)
        first, last, weights = _weights(old, size, start, stop)
        part = pixels[first:last].reshape(last - first, -1).astype(np.float32)
        resampled[start:stop] = (weights @ part).reshape(stop - start, *pixels.shape[1:])
    return resampled


@functools.lru_cache(maxsize=128)
def _weights(old: int, new: int, start: int, stop: int) -> tuple[int, int, Any]:
    """A range of `old` pixels in a line, and their weights in the `new` pixels from `start` to `stop`."""
    # Sparse: BLAS would start threads in each of ours, to multiply 99 % zeros.
    from scipy.sparse import csr_matrix

    scale = old / new
    targets = np.arange(start, stop)[:, None]
    if new < old:
        # Not Pillow's box filter: it counts a pixel on the edge fully or not at all.
        begin = targets * scale
        sources = np.floor(begin) + np.arange(math.ceil(scale) + 1)
        overlap = np.minimum(begin + scale, sources + 1) - np.maximum(begin, sources)
        weights = np.maximum(overlap, 0) / scale
    else:
        centres = np.clip((targets + 0.5) * scale - 0.5, 0, old - 1)
        sources = np.floor(centres) + np.arange(2)
        weights = 1 - np.abs(sources - centres)
    # Beyond the last pixel, weights are zero.
    sources = np.minimum(sources, old - 1).astype(np.int32)
    first, last = int(sources.min()), int(sources.max()) + 1
    count, taps = sources.shape
    ends = np.arange(0, count * taps + 1, taps, dtype=np.int32)
    content = (weights.astype(np.float32).ravel(), (sources - first).ravel(), ends)
    return first, last, csr_matrix(content, shape=(count, last - first))
