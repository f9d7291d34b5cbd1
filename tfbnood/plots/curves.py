"""ROC and precision-recall curves, with pointwise bootstrap bands over images."""

import dataclasses
from collections.abc import Callable

import numpy as np

__all__ = ["ALONG", "PRECISION_RECALL", "ROC", "Curve", "curve_band"]

# Where bands are measured; not at 0, where no threshold has a precision.
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

    Inliers and outliers are drawn apart, as for the intervals of `tfbnood.metrics`.
    """
    random = np.random.default_rng(seed)
    classes = np.flatnonzero(is_ood == 0), np.flatnonzero(is_ood == 1)
    heights = []
    for _ in range(resamples):
        drawn = np.concatenate([random.choice(rows, len(rows)) for rows in classes])
        heights.append(curve.heights(*curve.points(is_ood[drawn], scores[drawn])))
    low, high = np.percentile(heights, (2.5, 97.5), axis=0)
    # Where a curve jumps, percentiles may leave the curve itself outside by a hair.
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
    # not ask for one outlier more.
    return precision[np.searchsorted(recall, ALONG - 1e-9)]


ROC = Curve("auroc", _roc_points, _roc_heights)
PRECISION_RECALL = Curve("average_precision", _precision_recall_points, _precision_recall_heights)
