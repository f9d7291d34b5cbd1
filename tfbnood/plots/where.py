"""Where images are unusual: images with their heat maps."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.images import as_images
from tfbnood.errors import DataError
from tfbnood.plots.style import check_at_least_one, check_length, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["where"]


def where(
    images: Any,
    maps: Any,
    *,
    over: bool = False,
    labels: Sequence[str] | None = None,
    columns: int = 4,
    limit: float = 3.0,
    title: str = "",
) -> "Figure":
    """Draws images, each with its heat map beside or over it.

    Args:
        images: `[n, height, width, channels]` in 0–255.
        maps: `[n, height, width]`, from `Detector.explain`: 0 is the mean of an image's places, 1 their deviation.
        over: draw each map over its image, more opaque where it is higher. Defaults to beside it.
        labels: a text above each image, such as its p-value.
        columns: maximum images per row. Defaults to 4.
        limit: where colours end, in standard deviations. Defaults to 3.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> from tfbnood.statistics.where import explain
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, x.train)
        >>> figure = where(x.test[:3], explain(statistic, x.test[:3]))
        >>> sum(len(axes.images) for axes in figure.axes[:6])
        6
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    images = as_images(images)
    maps = np.asarray(maps, np.float64)
    if maps.shape != images.shape[:3] or not np.isfinite(maps).all():
        raise DataError(
            f"maps must be finite and have shape {images.shape[:3]}, like the images. Received: shape={maps.shape}"
        )
    if not limit > 0:
        raise DataError(f"limit must be positive. Received: limit={limit}")
    check_at_least_one(columns, "columns")
    if labels is not None:
        check_length(labels, images, "labels", "images")
    columns = min(columns, len(images))
    rows = math.ceil(len(images) / columns)
    panels = 1 if over else 2
    # Space for the bar on the right.
    figure = new_figure(1.5 * panels * columns + 1.2, 1.7 * rows + 0.6)
    grid = figure.subplots(rows, panels * columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    for index, (image, one) in enumerate(zip(images, maps, strict=True)):
        row, column = divmod(index, columns)
        first, last = grid[row, panels * column], grid[row, panels * column + panels - 1]
        first.imshow(_shown(image), cmap="gray", vmin=0, vmax=255)
        last.imshow(
            one,
            cmap="inferno",
            vmin=-limit,
            vmax=limit,
            alpha=0.75 * np.clip(one / limit, 0, 1) if over else None,
        )
        if labels is not None:
            first.set_title(labels[index], fontsize=8)
    # Not from a map itself, whose opacity the bar would share.
    scale = ScalarMappable(Normalize(-limit, limit), "inferno")
    bar = figure.colorbar(scale, ax=grid, extend="both", shrink=0.8, aspect=30)
    bar.set_label("unusual: deviations from the image's mean place", fontsize=8)
    figure.suptitle(title or "Where each image is unusual")
    return figure


def _shown(image: np.ndarray) -> np.ndarray:
    """Grey images as matrices, as matplotlib expects them."""
    return image[..., 0] if image.shape[-1] == 1 else image
