"""Any number of images through a function of one batch, in constant memory and with one compilation."""

from collections.abc import Callable

import numpy as np
from tqdm import tqdm

__all__ = ["map_batches"]


def map_batches(
    function: Callable,
    images: np.ndarray,
    *,
    batch_size: int = 64,
    description: str = "",
    progress: bool = False,
) -> np.ndarray:
    """Applies `function` to runs of exactly `batch_size` images and returns its rows for all images, `[n, …]`.

    The last batch is completed by images from the front, whose rows are dropped: a short batch would compile again,
    and with the moments of the batch it would be another statistic.

    Args:
        function: `[batch_size, height, width, channels]` → a tensor or array `[batch_size, …]`.
        images: `[n, height, width, channels]`, n > 0.
        batch_size: images in a pass.
        description: for the progress bar.
        progress: show a bar on a terminal.
    """
    parts = []
    starts = range(0, len(images), batch_size)
    for start in tqdm(starts, desc=description, unit="batch", disable=None if progress else True):
        rows = np.arange(start, start + batch_size) % len(images)
        parts.append(np.asarray(function(images[rows])))
    return np.concatenate(parts)[: len(images)]
