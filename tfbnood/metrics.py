"""How well scores separate outliers from inliers: label 1 is out-of-distribution, with higher scores.

All metrics are functions of two counts per distinct score, highest first: the outliers and the inliers with that
score. Ties are thus exact, and a bootstrap resample only changes the counts.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tfbnood.errors import DataError

__all__ = [
    "METRICS",
    "Estimate",
    "auroc",
    "average_precision",
    "bootstrap_interval",
    "estimates",
    "fpr_at_tpr",
]

# Counts in memory at once: 2²¹ of 8 bytes are 16 MB, whatever the number of images.
_COUNTS_AT_ONCE = 2**21


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval.

    Example:
        >>> print(Estimate(value=0.9, low=0.85, high=0.95))
        0.900 ±0.050
    """

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.value:.3f} ±{self.half_width:.3f}"


def auroc(is_ood: Any, scores: Any) -> float:
    """Area under the ROC curve: the chance that an outlier scores above an inlier, a tie counting one half.

    Args:
        is_ood: `[n]`, True or 1 for outliers.
        scores: `[n]`, higher means more out-of-distribution.

    Example:
        >>> auroc([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8])
        0.875
    """
    return float(_auroc(*_counts(is_ood, scores)))


def average_precision(is_ood: Any, scores: Any) -> float:
    """Σₖ (recallₖ − recallₖ₋₁) · precisionₖ over thresholds at every distinct score.

    It depends on the share of outliers, which is also its value for uninformative scores: report both.

    Example:
        >>> average_precision([0, 1, 0, 1], [1.0, 1.0, 1.0, 1.0])
        0.5
    """
    return float(_average_precision(*_counts(is_ood, scores)))


def fpr_at_tpr(is_ood: Any, scores: Any, *, tpr: float = 0.95) -> float:
    """The share of inliers that raise an alarm at the highest threshold that finds `tpr` of the outliers.

    Example:
        >>> fpr_at_tpr([0, 0, 1, 1], [0.1, 0.4, 0.3, 0.8])
        0.5
    """
    if not 0 < tpr <= 1:
        raise DataError(f"tpr must lie in (0, 1]. Received: tpr={tpr}")
    return float(_fpr_at_tpr(*_counts(is_ood, scores), tpr=tpr))


def bootstrap_interval(
    is_ood: Any,
    scores: Any,
    *,
    metric: str = "auroc",
    resamples: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of a metric.

    Inliers and outliers are resampled separately, so that the share of outliers stays. Images are assumed independent:
    for a statistic of scope "batch" the interval ignores the randomness of the groups. If the classes separate
    perfectly, so does every resample, and the interval has no length.

    Args:
        is_ood: `[n]`, True or 1 for outliers.
        scores: `[n]`, higher means more out-of-distribution.
        metric: one of `METRICS`.
        resamples: Defaults to 200.
        level: Defaults to 0.95.
        seed: same seed, same interval.

    Example:
        >>> low, high = bootstrap_interval([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8], metric="auroc")
        >>> low < auroc([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8]) < high
        True
    """
    if metric not in METRICS:
        raise DataError(f"metric must be one of {', '.join(METRICS)}. Received: {metric!r}")
    found = estimates(is_ood, scores, resamples=resamples, level=level, seed=seed)[metric]
    return found.low, found.high


def estimates(
    is_ood: Any, scores: Any, *, resamples: int = 200, level: float = 0.95, seed: int = 0
) -> dict[str, Estimate]:
    """All `METRICS` with their bootstrap intervals, from the same resamples; arguments as for `bootstrap_interval`.

    Example:
        >>> print(estimates([0, 0, 1, 1], [0.1, 0.3, 0.4, 0.8])["auroc"])
        1.000 ±0.000
    """
    if resamples < 1:
        raise DataError(f"resamples must be at least 1. Received: resamples={resamples}")
    if not 0 < level < 1:
        raise DataError(f"level must lie in (0, 1). Received: level={level}")
    outliers, inliers = _counts(is_ood, scores)
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in METRICS}
    random = np.random.default_rng(seed)
    step = max(1, _COUNTS_AT_ONCE // len(outliers))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        pair = _resampled(outliers, rows, random), _resampled(inliers, rows, random)
        for name, metric in METRICS.items():
            drawn[name].append(metric(*pair))
    limits = 50 * (1 - level), 50 * (1 + level)
    return {
        name: Estimate(
            float(metric(outliers, inliers)),
            *(float(limit) for limit in np.percentile(np.concatenate(drawn[name]), limits)),
        )
        for name, metric in METRICS.items()
    }


def _counts(is_ood: Any, scores: Any) -> tuple[np.ndarray, np.ndarray]:
    labels, values = np.asarray(is_ood), np.asarray(scores, np.float64)
    if labels.ndim != 1 or labels.shape != values.shape:
        raise DataError(
            "is_ood and scores must be vectors of one length. "
            f"Received: shapes {labels.shape} and {values.shape}"
        )
    if not np.isin(labels, (0, 1)).all() or len(np.unique(labels)) != 2:
        raise DataError(
            "is_ood must hold both 0 (in-distribution) and 1 (out-of-distribution), nothing else. "
            f"Received: values {np.unique(labels)[:5].tolist()}"
        )
    if np.isnan(values).any():
        raise DataError(f"scores must be numbers. Received: {np.isnan(values).sum()} NaN")
    distinct, index = np.unique(-values, return_inverse=True)
    outlier = labels.astype(bool)
    return (
        np.bincount(index[outlier], minlength=len(distinct)),
        np.bincount(index[~outlier], minlength=len(distinct)),
    )


def _resampled(counts: np.ndarray, rows: int, random: np.random.Generator) -> np.ndarray:
    return random.multinomial(counts.sum(), counts / counts.sum(), size=rows)


def _auroc(outliers: np.ndarray, inliers: np.ndarray) -> np.ndarray:
    total = inliers.sum(axis=-1, keepdims=True)
    below = total - inliers.cumsum(axis=-1) + inliers / 2
    return (outliers * below).sum(axis=-1) / (outliers.sum(axis=-1) * total[..., 0])


def _average_precision(outliers: np.ndarray, inliers: np.ndarray) -> np.ndarray:
    found = outliers.cumsum(axis=-1)
    # A resample may lack the highest scores: nothing is found there, so nothing is added.
    alarms = np.maximum(found + inliers.cumsum(axis=-1), 1)
    return (outliers * found / alarms).sum(axis=-1) / outliers.sum(axis=-1)


def _fpr_at_tpr(outliers: np.ndarray, inliers: np.ndarray, *, tpr: float = 0.95) -> np.ndarray:
    # 0.07 · 100 is 7.000000000000001: rounding must not require one more outlier.
    wanted = np.ceil(tpr * outliers.sum(axis=-1, keepdims=True) - 1e-9)
    threshold = (outliers.cumsum(axis=-1) >= wanted).argmax(axis=-1)[..., None]
    alarms = np.take_along_axis(inliers.cumsum(axis=-1), threshold, axis=-1)[..., 0]
    return alarms / inliers.sum(axis=-1)


METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = MappingProxyType(
    {"auroc": _auroc, "average_precision": _average_precision, "fpr_at_95_tpr": _fpr_at_tpr}
)
