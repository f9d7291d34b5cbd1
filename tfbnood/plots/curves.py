"""ROC and precision-recall curves, with pointwise bootstrap bands over images."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood.metrics import Estimate, estimates
from tfbnood.plots.style import (
    CHANCE,
    draw_band,
    legend_beside,
    line,
    new_figure,
    vectors,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["ALONG", "PRECISION_RECALL", "ROC", "Curve", "curve_band", "precision_recall", "roc"]

# Where bands are measured; not at 0, where precision is undefined.
ALONG = np.linspace(0.005, 1, 200)


Points = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Curve:
    """A kind of curve.

    Attributes:
        metric: the name of its area in `tfbnood.metrics.METRICS`.
        points: `(is_ood, scores)` → x, not decreasing, and y at all thresholds.
        heights: those points → y at `ALONG`.
    """

    metric: str
    points: Callable[[np.ndarray, np.ndarray], Points]
    heights: Callable[[np.ndarray, np.ndarray], np.ndarray]


def curve_band(
    curve: Curve, is_ood: np.ndarray, scores: np.ndarray, *, resamples: int = 200, seed: int = 0
) -> Points:
    """The 95 % percentile band of a curve's heights at `ALONG`, low and high.

    Inliers and outliers are resampled separately, as for the intervals of `tfbnood.metrics`.
    """
    random = np.random.default_rng(seed)
    classes = np.flatnonzero(is_ood == 0), np.flatnonzero(is_ood == 1)
    heights = []
    for _ in range(resamples):
        drawn = np.concatenate([random.choice(rows, len(rows)) for rows in classes])
        heights.append(curve.heights(*curve.points(is_ood[drawn], scores[drawn])))
    low, high = np.percentile(heights, (2.5, 97.5), axis=0)
    # Where a curve jumps, percentiles may just miss the curve itself.
    own = curve.heights(*curve.points(is_ood, scores))
    return np.minimum(low, own), np.maximum(high, own)


def _roc_points(is_ood: np.ndarray, scores: np.ndarray) -> Points:
    from sklearn.metrics import roc_curve

    false_alarms, found, _ = roc_curve(is_ood, scores, drop_intermediate=False)
    return false_alarms, found


def _roc_heights(false_alarms: np.ndarray, found: np.ndarray) -> np.ndarray:
    return np.interp(ALONG, false_alarms, found)


def _precision_recall_points(is_ood: np.ndarray, scores: np.ndarray) -> Points:
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(is_ood, scores)
    return recall[::-1], precision[::-1]


def _precision_recall_heights(recall: np.ndarray, precision: np.ndarray) -> np.ndarray:
    # The highest threshold that finds so many: precision does not change linearly between thresholds. Rounding must
    # not require one more outlier.
    return precision[np.searchsorted(recall, ALONG - 1e-9)]


ROC = Curve("auroc", _roc_points, _roc_heights)


PRECISION_RECALL = Curve("average_precision", _precision_recall_points, _precision_recall_heights)


def roc(is_ood: Any, scores: Any, *, seed: int = 0, title: str = "") -> "Figure":
    """Draws ROC curves with 95 % bands and AUROC.

    Bands are pointwise, by bootstrap over images: outliers and inliers are resampled separately, 200 times.

    Args:
        is_ood: `[n]`, True or 1 for outliers.
        scores: `[n]` or `{label: [n]}`, higher means more out-of-distribution.
        seed: of the bootstrap.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> figure = tfbnood.plots.roc([0, 0, 1, 1], {"brightness": [0.1, 0.4, 0.6, 0.8]})
        >>> [line.get_label() for line in figure.axes[0].get_lines()]
        ['brightness: AUROC 1.000 ±0.000', 'chance: 0.5']
    """
    figure = new_figure(7.6, 4.8)
    axes = figure.subplots()
    _draw_curves(axes, ROC, is_ood, scores, seed, "AUROC", drawstyle="default")
    axes.plot([0, 1], [0, 1], label="chance: 0.5", **CHANCE)
    axes.set_xlabel("false-positive rate: share of inliers that raise an alarm")
    axes.set_ylabel("true-positive rate: share of outliers found")
    axes.set_title(title or "ROC curve, 95 % band")
    legend_beside(axes)
    return figure


def precision_recall(is_ood: Any, scores: Any, *, seed: int = 0, title: str = "") -> "Figure":
    """Draws precision-recall curves with 95 % bands and average precision.

    Curves are steps, whose area is the average precision; bands are as for `roc`. The chance level is the share of
    outliers.

    Args:
        is_ood: `[n]`, True or 1 for outliers.
        scores: `[n]` or `{label: [n]}`, higher means more out-of-distribution.
        seed: of the bootstrap.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> figure = tfbnood.plots.precision_recall([0, 0, 0, 1], [0.1, 0.4, 0.3, 0.8])
        >>> [line.get_label() for line in figure.axes[0].get_lines()]
        ['scores: AP 1.000 ±0.000', 'chance: 0.250']
    """
    figure = new_figure(7.6, 4.8)
    axes = figure.subplots()
    _draw_curves(axes, PRECISION_RECALL, is_ood, scores, seed, "AP", drawstyle="steps-pre")
    chance = np.asarray(is_ood, np.float64).mean()
    axes.axhline(chance, label=f"chance: {chance:.3f}", **CHANCE)
    axes.set_xlabel("recall: share of outliers found")
    axes.set_ylabel("precision: share of outliers among alarms")
    axes.set_title(title or "Precision and recall, 95 % band")
    legend_beside(axes)
    return figure


def _draw_curves(
    axes: Any, curve: Curve, is_ood: Any, scores: Any, seed: int, area: str, *, drawstyle: str
) -> None:
    for index, (label, values) in enumerate(vectors(scores, "scores", "scores").items()):
        found: Estimate = estimates(is_ood, values, seed=seed)[curve.metric]
        labels = np.asarray(is_ood).astype(int)
        axes.plot(
            *curve.points(labels, values),
            drawstyle=drawstyle,
            label=f"{label}: {area} {found}",
            **line(index),
        )
        draw_band(axes, ALONG, *curve_band(curve, labels, values, seed=seed), index)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.01)
