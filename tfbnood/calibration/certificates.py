"""Certified rates: thresholds whose false-alarm rate is bounded with a stated confidence, not only on average.

The rate of the alarm "score above the k-th largest of n calibration scores" depends on the calibration images. For
independent scores without ties it has a Beta(k, n − k + 1) distribution, whatever that of the scores; ties only lower
it. So `P(rate ≤ fpr) ≥ P(Beta(k, n − k + 1) ≤ fpr) = P(Binomial(n, fpr) ≥ k)`.

Reference: Vovk, Conditional validity of inductive conformal predictors, 2012, arXiv:1209.2673; Wilks 1941.
"""

import math

import numpy as np

from tfbnood._core.checks import check_integer
from tfbnood.errors import DataError

__all__ = [
    "certified_rank",
    "certified_rate",
    "certified_threshold",
    "images_to_certify",
    "smallest_certified_rate",
]


def certified_rank(n: int, fpr: float, confidence: float = 0.95) -> int:
    """The largest k for which alarms above the k-th largest of n scores have a rate of at most `fpr`, with confidence.

    `score > k-th largest` is the same as `p ≤ k / (n + 1)` for `conformal_p_values`.

    Args:
        n: number of calibration scores, of independent in-distribution images.
        fpr: the false-alarm rate to promise, in (0, 1).
        confidence: the probability, over the draw of the calibration images, with which the promise holds.

    Raises:
        DataError: if n scores are too few; the message states how many are needed.

    Example:
        >>> certified_rank(1000, 0.05), certified_rank(1000, 0.01)
        (39, 5)
    """
    check_integer("n", n, least=1)
    _check_share("fpr", fpr)
    _check_share("confidence", confidence)
    from scipy.stats import beta, binom

    # The smallest k with P(Binomial ≤ k) ≥ 1 − confidence, so that P(Binomial < k) is below it.
    rank = int(binom.ppf(1 - confidence, n, fpr))
    # Rounding errors must not make a rate exactly on the bound miss it.
    if rank < n and beta.cdf(fpr, rank + 1, n - rank) >= confidence * (1 - 1e-12):
        rank += 1
    if rank < 1:
        raise DataError(
            f"fpr must be at least {smallest_certified_rate(n, confidence):.2g} with n={n} calibration scores and "
            f"confidence={confidence:g}; calibrate on at least {images_to_certify(fpr, confidence)} images. "
            f"Received: fpr={fpr}"
        )
    return rank


def certified_threshold(null: np.ndarray, fpr: float, confidence: float = 0.95) -> float:
    """The score above which an alarm is raised, so that its rate is at most `fpr` with the stated confidence.

    Args:
        null: `[n]`, calibration scores.
        fpr: the false-alarm rate to promise, in (0, 1).
        confidence: the probability with which the promise holds.

    Example:
        >>> certified_threshold(np.arange(1000.0), 0.05)  # the 39th largest
        961.0
    """
    null = np.asarray(null)
    if null.ndim != 1 or null.dtype.kind not in "iuf" or not np.isfinite(null).all():
        raise DataError(
            f"null must be finite scores of shape [n]. Received: shape={null.shape}, dtype={null.dtype}"
        )
    rank = certified_rank(max(1, len(null)), fpr, confidence)
    return float(np.partition(null, len(null) - rank)[len(null) - rank])


def certified_rate(n: int, rank: int, confidence: float = 0.95) -> float:
    """The rate that alarms above the rank-th largest of n scores stay below, with the stated confidence.

    Example:
        >>> round(certified_rate(1000, 50), 3)  # What "5 %" may be.
        0.062
    """
    check_integer("n", n, least=1)
    check_integer("rank", rank, least=1)
    _check_share("confidence", confidence)
    if rank > n:
        raise DataError(f"rank must be at most n. Received: rank={rank}, n={n}")
    from scipy.stats import beta

    return float(beta.ppf(confidence, rank, n - rank + 1))


def smallest_certified_rate(n: int, confidence: float = 0.95) -> float:
    """The smallest rate that n scores can certify: `1 − (1 − confidence)^(1/n)`, for alarms above all of them.

    Example:
        >>> round(smallest_certified_rate(1000), 5)
        0.00299
    """
    check_integer("n", n, least=1)
    _check_share("confidence", confidence)
    return -math.expm1(math.log1p(-confidence) / n)


def images_to_certify(fpr: float, confidence: float = 0.95) -> int:
    """The number of calibration images needed to certify a rate: `log(1 − confidence) / log(1 − fpr)`.

    Example:
        >>> images_to_certify(0.05), images_to_certify(0.01), images_to_certify(0.001)
        (59, 299, 2995)
    """
    _check_share("fpr", fpr)
    _check_share("confidence", confidence)
    return math.ceil(math.log1p(-confidence) / math.log1p(-fpr))


def _check_share(name: str, value: float) -> None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise DataError(f"{name} must lie in (0, 1). Received: {name}={value!r}")
