"""From scores of single images to one p-value for the whole batch.

Each test is a function of sorted conformal p-values `[…, n]`; higher means more out-of-distribution. Its null is that
of random groups of calibration and test images taken together: a permutation test, exact for any calibration set.
"""

import functools
from collections.abc import Callable
from types import MappingProxyType

import numpy as np

from tfbnood.errors import StatisticError

__all__ = [
    "BATCH_TESTS",
    "batch_p_value",
    "check_batch_test",
    "default_batch_test",
    "fisher",
    "higher_criticism",
    "kolmogorov_smirnov",
    "simes",
]


def batch_p_value(
    scores: np.ndarray, calibration: np.ndarray, test: str, *, permutations: int = 999
) -> float:
    """P-value of "these images come from where the calibration images do".

    Args:
        scores: `[n]`, of the batch's images; higher means more out-of-distribution.
        calibration: `[m]`, of held-out in-distribution images.
        test: a name of `BATCH_TESTS`.
        permutations: random groups to compare with; no p-value lies below `1 / (permutations + 1)`.

    Example:
        >>> batch_p_value(np.arange(100.0, 120.0), np.arange(100.0), "simes")
        0.001
    """
    # Rank 0 is the highest score; ties count against the alarm.
    pooled = np.sort(np.concatenate([scores, calibration]))
    ranks = len(pooled) - 1 - np.searchsorted(pooled, np.sort(scores)[::-1], side="left")
    observed = BATCH_TESTS[test](_p_values(ranks, len(calibration)))
    null = _null(test, len(scores), len(calibration), permutations)
    return float((1 + (null >= observed).sum()) / (permutations + 1))


@functools.lru_cache(maxsize=64)
def _null(test: str, count: int, calibration: int, permutations: int) -> np.ndarray:
    """Values of a test for random groups; ranks are all that matters, so that it is the same for all scores."""
    random = np.random.RandomState(0)
    groups = (np.sort(random.permutation(count + calibration)[:count]) for _ in range(permutations))
    return np.array([BATCH_TESTS[test](_p_values(group, calibration)) for group in groups])


def default_batch_test(scope: str, count: int) -> str:
    """The test to use for a batch of so many images.

    Example:
        >>> default_batch_test("image", 64), default_batch_test("image", 5), default_batch_test("batch", 64)
        ('higher_criticism', 'simes', 'mean')
    """
    if scope == "batch":
        return "mean"
    # Higher criticism does not look below p = 1/n, which is all that a few images have.
    return "higher_criticism" if count >= 10 else "simes"


def check_batch_test(test: str, scope: str) -> None:
    """Refuses a test that there is not, or not for statistics of this scope.

    Example:
        >>> check_batch_test("simes", "batch")
        Traceback (most recent call last):
            ...
        tfbnood.errors.StatisticError: method must be one of mean for a statistic of scope "batch". ...
    """
    known = tuple(BATCH_TESTS) if scope == "image" else ("mean",)
    if test not in known:
        raise StatisticError(
            f'method must be one of {", ".join(known)} for a statistic of scope "{scope}". Received: method={test!r}'
        )


def _p_values(ranks: np.ndarray, calibration: int) -> np.ndarray:
    """Sorted conformal p-values of a group, given by its sorted ranks in the pool, against the rest of the pool."""
    before = ranks - np.arange(ranks.shape[-1])  # of the rest, as high or higher
    return (1 + np.maximum(before, 0)) / (calibration + 1)


def simes(p_values: np.ndarray) -> np.ndarray:
    """−log of Simes' p-value, `min_i n·p_(i)/i`: a few very small p-values are enough.

    Example:
        >>> round(float(np.exp(-simes(np.array([0.01, 0.5, 0.9])))), 3)
        0.03
    """
    count = p_values.shape[-1]
    return -np.log((count * p_values / np.arange(1, count + 1)).min(axis=-1))


def higher_criticism(p_values: np.ndarray) -> np.ndarray:
    """Donoho & Jin's `max_i √n (i/n − p_(i)) / √(p_(i)(1 − p_(i)))` over the smaller half, `p_(i) ≥ 1/n`.

    The largest excess of small p-values in standard deviations: best for a small share of weak outliers.

    Example:
        >>> round(float(higher_criticism(np.array([0.01, 0.02, 0.5, 0.9]))), 3)
        1.155
    """
    count = p_values.shape[-1]
    expected = np.arange(1, count + 1) / count
    # Below 1/n the ratio blows up for one lucky image of an innocent batch.
    p_values = np.clip(p_values, 1 / count, 1 - 1e-9)
    excess = np.sqrt(count) * (expected - p_values) / np.sqrt(p_values * (1 - p_values))
    return excess[..., : max(1, count // 2)].max(axis=-1)


def kolmogorov_smirnov(p_values: np.ndarray) -> np.ndarray:
    """One-sided Kolmogorov–Smirnov distance `max_i (i/n − p_(i))`: the whole batch is shifted a little.

    Example:
        >>> round(float(kolmogorov_smirnov(np.array([0.1, 0.2, 0.3, 0.4]))), 3)
        0.6
    """
    count = p_values.shape[-1]
    return (np.arange(1, count + 1) / count - p_values).max(axis=-1)


def fisher(p_values: np.ndarray) -> np.ndarray:
    """Fisher's `−2 Σ log p`: every image counts, the smallest p-values most.

    Example:
        >>> round(float(fisher(np.array([0.1, 0.5]))), 3)
        5.991
    """
    return -2 * np.log(p_values).sum(axis=-1)


BATCH_TESTS: MappingProxyType[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "simes": simes,
        "higher_criticism": higher_criticism,
        "kolmogorov_smirnov": kolmogorov_smirnov,
        "fisher": fisher,
    }
)
