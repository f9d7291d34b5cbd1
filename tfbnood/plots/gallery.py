"""Images side by side; those that raise an alarm have a frame."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.images import as_images
from tfbnood.errors import DataError
from tfbnood.plots.style import check_at_least_one, check_length, line, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["gallery"]

_SIDE = 0.9  # of an image, in a cell of width 1
_HEADLINE = 0.3  # space for a name above an image


def gallery(
    images: Any,
    flagged: Any = None,
    *,
    names: Sequence[str] | None = None,
    columns: int = 12,
    title: str = "",
) -> "Figure":
    """Shows images row by row, with an orange frame around flagged ones.

    Args:
        images: `[n, height, width, channels]` in 0–255, grey or colour.
        flagged: booleans `[n]`, such as `detector.predict(images).is_ood`. Defaults to no frames.
        names: of the images, `[n]`, written above them.
        columns: images per row. Defaults to 12, or all if there are fewer.
        title: Defaults to none.

    Returns:
        The figure.

    Example:
        >>> images = tfbnood.data.load("digits").test[:5]
        >>> figure = tfbnood.plots.gallery(images, [False, True, False, False, True], columns=3)
        >>> len(figure.axes[0].images), len(figure.axes[0].patches)
        (5, 2)
    """
    from matplotlib.patches import Rectangle

    check_at_least_one(columns, "columns")
    images = as_images(images)
    if not len(images):
        raise DataError("images must be at least one. Received: none")
    flagged = np.zeros(len(images), bool) if flagged is None else np.asarray(flagged)
    if flagged.dtype != bool:
        raise DataError(f"flagged must be booleans. Received: {flagged.dtype}")
    check_length(flagged, images, "flagged", "images")
    if names is not None:
        check_length(names, images, "names", "images")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    high = _SIDE * images.shape[1] / images.shape[2]
    step = high + (0.1 if names is None else _HEADLINE)

    inches = 0.8 if names is None else 1.1  # of a cell: names need space
    figure = new_figure(max(2, inches * columns), inches * rows * step + (0.5 if title else 0.1))
    axes = figure.subplots()
    for index, image in enumerate(images):
        row, left = divmod(index, columns)
        top = -row * step
        # Smoothed pixels would make a PNG several times as large.
        drawn = axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        drawn.set_extent((left, left + _SIDE, top - high, top))
        if flagged[index]:
            place = (left, top - high)
            colour = line(1)["color"]
            axes.add_patch(Rectangle(place, _SIDE, high, fill=False, edgecolor=colour, linewidth=4))
        if names is not None:
            middle = left + _SIDE / 2
            axes.text(
                middle, top + 0.03, names[index], ha="center", va="bottom", fontsize="x-small"
            )
    axes.set(xlim=(-0.1, columns), ylim=(-rows * step, 0.05 if names is None else _HEADLINE))
    axes.set_axis_off()
    axes.set_title(title)
    return figure
