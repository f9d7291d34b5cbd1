"""From scores of single images to one p-value for the whole batch.

Each test is a function of sorted conformal p-values `[…, n]`; higher means more out-of-distribution. Its null
distribution comes from random groups of the pooled calibration and test images: a permutation test, exact for any
calibration set. Within clusters, images are only exchanged with calibration images of their own cluster: exact
whatever the shares of the clusters in the batch.
"""

import functools
from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from tfbnood.errors import DataError, StatisticError

__all__ = [
    "BATCH_TESTS",
    "batch_p_value",
    "batch_p_value_within",
    "check_batch_test",
    "contributions",
    "default_batch_test",
    "fisher",
    "higher_criticism",
    "kolmogorov_smirnov",
    "simes",
]

_MOST_ROWS = 256  # images of a batch whose contribution is computed
_MOST_BY_FLOYD = 128  # The time of that algorithm grows with the square of the size.


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
    ranks = _ranks(np.sort(scores)[::-1], calibration)
    observed = BATCH_TESTS[test](_p_values(ranks, len(calibration)))
    null = _null(test, len(scores), len(calibration), permutations)
    return float((1 + (null >= observed).sum()) / (permutations + 1))


def batch_p_value_within(
    scores: np.ndarray,
    clusters: np.ndarray,
    calibration: Sequence[np.ndarray],
    test: str,
    *,
    permutations: int = 999,
) -> float:
    """P-value of "within each cluster these images come from where the calibration images do".

    The clusters may have any shares in the batch: the null is that of batches with the same shares.

    Args:
        scores: `[n]`, of the batch's images; higher means more out-of-distribution.
        clusters: `[n]`, of the same images, integers from 0.
        calibration: by cluster, `[m]` scores of held-out in-distribution images.
        test: a name of `BATCH_TESTS`.
        permutations: random groups to compare with; no p-value lies below `1 / (permutations + 1)`.

    Example:
        >>> low, high = np.arange(100.0), np.arange(1000.0, 1100.0)
        >>> scores, clusters = np.arange(1020.0, 1080.0, 6), np.ones(10, int)  # ordinary in their cluster
        >>> batch_p_value_within(scores, clusters, [low, high], "simes") > 0.2
        True
    """
    if len(scores) != len(clusters) or not len(scores):
        raise DataError(
            f"scores and clusters must have one length, at least 1. Received: {len(scores)} and {len(clusters)}"
        )
    counts = np.bincount(clusters, minlength=len(calibration))
    parts = []
    for cluster in np.flatnonzero(counts).tolist():
        own = np.sort(scores[clusters == cluster])[::-1]
        parts.append(_p_values(_ranks(own, calibration[cluster]), len(calibration[cluster])))
    observed = BATCH_TESTS[test](np.sort(np.concatenate(parts)))
    sizes = tuple(len(one) for one in calibration)
    null = _null_within(test, tuple(counts.tolist()), sizes, permutations)
    return float((1 + (null >= observed).sum()) / (permutations + 1))


@functools.lru_cache(maxsize=64)
def _null(test: str, count: int, calibration: int, permutations: int) -> np.ndarray:
    """Values of a test for random groups; only ranks matter, so that it is the same for all scores."""
    random = np.random.RandomState(0)
    groups = (np.sort(random.permutation(count + calibration)[:count]) for _ in range(permutations))
    return np.array([BATCH_TESTS[test](_p_values(group, calibration)) for group in groups])


@functools.lru_cache(maxsize=64)
def _null_within(
    test: str, counts: tuple[int, ...], calibration: tuple[int, ...], permutations: int
) -> np.ndarray:
    """Values of a test for random groups, given the numbers of batch and calibration images in each cluster.

    The groups themselves are not kept: for 10,000 images they take 80 MB.
    """
    random = np.random.RandomState(0)
    parts = [
        _p_values(_subsets(random, permutations, count, count + of), of)
        for count, of in zip(counts, calibration, strict=True)
        if count
    ]
    return BATCH_TESTS[test](np.sort(np.concatenate(parts, axis=1), axis=1))


def _subsets(random: np.random.RandomState, draws: int, size: int, pool: int) -> np.ndarray:
    """Random subsets of `0 … pool − 1`, sorted, `[draws, size]`."""
    if size > _MOST_BY_FLOYD:
        return np.sort([random.permutation(pool)[:size] for _ in range(draws)], axis=1)
    # Floyd's algorithm, for all draws at once.
    chosen = np.empty((draws, size), np.int64)
    for index, last in enumerate(range(pool - size, pool)):
        drawn = random.randint(0, last + 1, draws)
        taken = (chosen[:, :index] == drawn[:, None]).any(axis=1)
        chosen[:, index] = np.where(taken, last, drawn)
    return np.sort(chosen, axis=1)


def contributions(p_values: np.ndarray, test: str) -> np.ndarray:
    """How much the value of a test would fall if an image were ordinary, with a p-value of ½, `[n]`.

    Of more than 256 images, only those with the smallest p-values are examined; the others have 0.

    Args:
        p_values: `[n]`, of the batch's images in their order.
        test: a name of `BATCH_TESTS`.

    Example:
        >>> contributions(np.array([0.5, 0.01, 0.9]), "fisher").round(2)
        array([0.  , 7.82, 0.  ])
    """
    function = BATCH_TESTS[test]
    rows = np.argsort(p_values, kind="stable")[:_MOST_ROWS]
    rows = rows[p_values[rows] < 0.5]
    ordinary = np.tile(p_values, (len(rows), 1))
    ordinary[np.arange(len(rows)), rows] = 0.5
    found = np.zeros(len(p_values))
    found[rows] = function(np.sort(p_values)) - function(np.sort(ordinary, axis=1))
    return np.maximum(found, 0)


def default_batch_test(scope: str, count: int) -> str:
    """The default test for a batch of this size.

    Example:
        >>> default_batch_test("image", 64), default_batch_test("image", 5), default_batch_test("batch", 64)
        ('higher_criticism', 'simes', 'mean')
    """
    if scope == "batch":
        return "mean"
    # Higher criticism ignores p-values below 1/n, which for a few images are all that matter.
    return "higher_criticism" if count >= 10 else "simes"


def check_batch_test(test: str, scope: str) -> None:
    """Refuses an unknown test, or one that does not suit statistics of this scope.

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


def _ranks(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Ranks of descending scores in the pool; rank 0 is the highest score, and ties count against an alarm."""
    pooled = np.sort(np.concatenate([scores, calibration]))
    return len(pooled) - 1 - np.searchsorted(pooled, scores, side="left")


def _p_values(ranks: np.ndarray, calibration: int) -> np.ndarray:
    """Sorted conformal p-values of a group, given by its sorted ranks in the pool, against the rest of the pool."""
    before = ranks - np.arange(ranks.shape[-1])  # of the rest: as high or higher
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
    # Below 1/n, a single chance image of an ordinary batch makes the ratio huge.
    p_values = np.clip(p_values, 1 / count, 1 - 1e-9)
    excess = np.sqrt(count) * (expected - p_values) / np.sqrt(p_values * (1 - p_values))
    return excess[..., : max(1, count // 2)].max(axis=-1)


def kolmogorov_smirnov(p_values: np.ndarray) -> np.ndarray:
    """One-sided Kolmogorov–Smirnov distance `max_i (i/n − p_(i))`: finds small shifts of the whole batch.

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
