"""Any number of images through a function of one batch, in constant memory."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfbnood._core.progress import bar

__all__ = ["map_batches"]


def map_batches(
    function: Callable,
    images: np.ndarray,
    *,
    batch_size: int = 64,
    complete: bool = True,
    description: str = "",
    progress: bool | None = None,
) -> Any:
    """Applies `function` to runs of `batch_size` images and returns its rows for all images, `[n, …]`.

    Args:
        function: `[b, height, width, channels]` → a tensor or array `[b, …]`, or a dict of them.
        images: `[n, height, width, channels]`, n > 0.
        batch_size: images per pass.
        complete: complete the last batch by images from the front, whose rows are dropped: for functions in which
            companions count, or that compile for one size. False passes it as short as it is.
        description: for the progress bar.
        progress: show a bar on a terminal. Defaults to what the caller's caller chose.
    """
    parts = []
    for start in bar(range(0, len(images), batch_size), description, progress=progress):
        batch = images[start : start + batch_size]
        if complete and len(batch) < batch_size:
            batch = images[np.arange(start, start + batch_size) % len(images)]
        parts.append(_as_arrays(function(batch)))
    if isinstance(parts[0], Mapping):
        return {key: _joined([part[key] for part in parts], len(images)) for key in parts[0]}
    return _joined(parts, len(images))


def _as_arrays(found: Any) -> Any:
    if isinstance(found, Mapping):
        return {key: np.asarray(value) for key, value in found.items()}
    return np.asarray(found)


def _joined(parts: list[np.ndarray], count: int) -> np.ndarray:
    return np.concatenate(parts)[:count]
