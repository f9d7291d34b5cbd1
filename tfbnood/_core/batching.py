"""Any number of images through a function of one batch, in constant memory."""

import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import Any

import numpy as np

from tfbnood._core.progress import bar
from tfbnood._core.stream import ImageStream

__all__ = ["map_batches"]


def map_batches(
    function: Callable,
    images: np.ndarray | ImageStream,
    *,
    batch_size: int = 64,
    complete: bool = True,
    description: str = "",
    progress: bool | None = None,
) -> Any:
    """Applies `function` to runs of `batch_size` images and returns its rows for all images, `[n, …]`.

    Args:
        function: `[b, height, width, channels]` → a tensor or array `[b, …]`, or a dict of them.
        images: `[n, height, width, channels]`, n > 0, or a stream.
        batch_size: images per pass.
        complete: fill up the last batch with images from the front and drop their rows: for functions whose result
            depends on the whole batch, or that compile for one size. False passes a short batch.
        description: for the progress bar.
        progress: as for `bar`.
    """
    if isinstance(images, ImageStream):
        count, batches = images.about, images.chunks(batch_size)
    else:
        count, batches = len(images), _slices(images, batch_size)
    total = None if count is None else -(-count // batch_size)
    parts = []
    front = None
    with contextlib.closing(batches):
        for batch in bar(batches, description, total=total, progress=progress):
            front = batch if front is None else front
            missing = batch_size - len(batch)
            if complete and missing:
                others = front[np.arange(missing) % len(front)]
                found = function(np.concatenate([batch, others]))
            else:
                found = function(batch)
            parts.append(_as_arrays(found, len(batch)))
    if isinstance(parts[0], Mapping):
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts)


def _slices(images: np.ndarray, size: int) -> Generator[np.ndarray, None, None]:
    for start in range(0, len(images), size):
        yield images[start : start + size]


def _as_arrays(found: Any, count: int) -> Any:
    if isinstance(found, Mapping):
        return {key: np.asarray(value)[:count] for key, value in found.items()}
    return np.asarray(found)[:count]
