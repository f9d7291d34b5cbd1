"""P-values, and the most and least unusual images."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.images import as_images
from tfbnood.plots.style import (
    CHANCE,
    check_at_least_one,
    check_length,
    draw_histogram,
    legend_beside,
    new_figure,
    vector,
    vectors,
    within_one,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["extremes", "p_values"]


def p_values(p_values: Any, *, bins: int = 20, title: str = "") -> "Figure":
    """Draws histograms of p-values against their uniform in-distribution level.

    A bin includes its right edge, so that the first bar is the share of alarms at a false-alarm rate of 1/bins.

    Args:
        p_values: `[n]` or `{set: [n]}`, in [0, 1].
        bins: how many. Defaults to 20.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> figure = tfbnood.plots.p_values({"digits": [0.2, 0.9, 0.4], "inverted": [0.01, 0.02]})
        >>> figure.axes[0].get_ylabel()
        'share of images'
    """
    check_at_least_one(bins, "bins")
    edges = np.linspace(0, 1, bins + 1)
    figure = new_figure(7.6, 4.2)
    axes = figure.subplots()
    for index, (name, values) in enumerate(vectors(p_values, "p_values", "all").items()):
        # Rounding must not move a p-value into the next bin; 0 belongs to the first.
        places = np.ceil(within_one(values, "p_values") * bins - 1e-9).astype(int)
        counts = np.bincount(np.maximum(places, 1) - 1, minlength=bins)
        label = f"{name}: {len(values)} images"
        draw_histogram(axes, counts / len(values), edges, index, label)
    axes.axhline(1 / bins, label=f"uniform: {1 / bins:.3g} per bin", **CHANCE)
    axes.set_xlabel("p-value")
    axes.set_ylabel("share of images")
    axes.set_title(title or "p-values: uniform in-distribution")
    legend_beside(axes)
    return figure


def extremes(
    images: Any,
    scores: Any,
    *,
    count: int = 8,
    names: Sequence[str] | None = None,
    title: str = "",
) -> "Figure":
    """Shows the images with the highest scores, and below them those with the lowest, each with its score.

    Args:
        images: `[n, height, width, channels]` in 0–255, grey or colour.
        scores: `[n]`, higher means more out-of-distribution.
        count: images per row. Defaults to 8, or all if there are fewer.
        names: of the images, `[n]`, written above the scores.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> images = tfbnood.data.load("digits").test[:5]
        >>> figure = tfbnood.plots.extremes(images, [0.3, 0.1, 0.9, 0.2, 0.5], count=2)
        >>> [axes.get_title() for axes in figure.axes]
        ['0.9000', '0.5000', '0.1000', '0.2000']
    """
    check_at_least_one(count, "count")
    images, scores = as_images(images), vector(scores, "scores")
    check_length(scores, images, "scores", "images")
    if names is not None:
        check_length(names, images, "names", "images")
    count = min(count, len(images))
    order = np.argsort(-scores, kind="stable")
    rows = {"highest scores": order[:count], "lowest scores": order[::-1][:count]}
    style = _number_style(scores[[*rows["highest scores"], *rows["lowest scores"]]])

    figure = new_figure(max(4, 0.6 + 1.1 * count), 3.2 if names is None else 3.5)
    grid = figure.subplots(2, count, squeeze=False)
    for panels, (row, chosen) in zip(grid, rows.items(), strict=True):
        panels[0].set_ylabel(row)
        for axes, index in zip(panels, chosen, strict=True):
            axes.imshow(images[index], cmap="gray", vmin=0, vmax=255)
            axes.set_xticks([])
            axes.set_yticks([])
            score = format(scores[index], style)
            axes.set_title(score if names is None else f"{names[index]}\n{score}", fontsize="small")
    figure.suptitle(title or "Most and least out-of-distribution")
    return figure


def _number_style(values: np.ndarray) -> str:
    """A format with four digits for the largest value, and equally many decimals for the others."""
    largest = np.abs(values).max()
    if not 1e-3 <= largest < 1e6:
        return ".4g"
    return f".{max(0, 3 - math.floor(math.log10(largest)))}f"
