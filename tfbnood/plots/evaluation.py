"""How well statistics work, by share of outliers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood.errors import DataError
from tfbnood.plots.style import (
    draw_band,
    legend_beside,
    line,
    marker,
    new_figure,
    share_axis,
    vectors,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tfbnood.evaluation.result import Evaluation

__all__ = ["contamination", "delta_against_contamination"]


def contamination(evaluation: "Evaluation") -> "Figure":
    """Draws AUROC against the share of outliers in the pool, one panel per set; the same as `evaluation.plot()`.

    Args:
        evaluation: what `tfbnood.evaluate` returned.

    Returns:
        The figure.

    Example:
        >>> digits = tfbnood.data.load("digits").test
        >>> sets = {"inverted": 255 - digits}
        >>> found = tfbnood.evaluate(None, digits, sets, statistics="pixel_pca", contamination=(1.0, 0.2))
        >>> tfbnood.plots.contamination(found).axes[0].get_title()
        'inverted'
    """
    if not callable(getattr(evaluation, "plot", None)):
        raise DataError(
            f"evaluation must be what tfbnood.evaluate returned. Received: {type(evaluation).__name__}"
        )
    return evaluation.plot()


def delta_against_contamination(
    deltas: Mapping[float, Mapping[str, Any]], *, title: str = ""
) -> "Figure":
    """Draws the paper's Δ of every kind of image against the share of outliers in the pool.

    Lines are medians, bands the middle 80 % of a kind. Where the bands of outliers and inliers overlap, no threshold
    on Δ separates the two.

    Args:
        deltas: `{share: {kind: [n]}}`, shares in (0, 1]: Δ of the images of a pool, in nats, as `bn_delta` scores
            them. With a share of 1 outliers form a separate pool.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> deltas = {1.0: {"digits": [1.0, 2.0], "inverted": [80.0, 90.0]}, 0.2: {"digits": [3.0, 5.0]}}
        >>> figure = tfbnood.plots.delta_against_contamination(deltas)
        >>> figure.axes[0].get_lines()[0].get_data()[1].tolist()
        [4.0, 1.5]
    """
    if not isinstance(deltas, Mapping) or not deltas:
        raise DataError(f"deltas must be a dict of at least one share. Received: {deltas!r:.50}")
    pools = {share: vectors(deltas[share], f"deltas[{share}]", "all") for share in sorted(deltas)}
    if min(pools) <= 0 or max(pools) > 1:
        raise DataError(f"shares must lie in (0, 1]. Received: {list(pools)}")
    figure = new_figure(7.6, 4.2)
    axes = figure.subplots()
    for index, kind in enumerate(dict.fromkeys(kind for pool in pools.values() for kind in pool)):
        shares = [share for share, pool in pools.items() if kind in pool]
        low, middle, high = np.transpose(
            [np.percentile(pools[share][kind], (10, 50, 90)) for share in shares]
        )
        axes.plot(shares, middle, marker=marker(index), label=kind, **line(index))
        draw_band(axes, shares, low, high, index)
    axes.set_yscale("log")
    share_axis(axes, list(pools))
    axes.set_ylabel("Δ in nats: median, middle 80 %")
    axes.set_title(title or "Δ against contamination")
    legend_beside(axes)
    return figure
