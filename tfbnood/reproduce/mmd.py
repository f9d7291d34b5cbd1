"""The maximum mean discrepancy on raw pixels: the usual drift test, to compare with."""

import numpy as np

__all__ = ["mmd_p_value"]


def mmd_p_value(
    images: np.ndarray, reference: np.ndarray, *, permutations: int = 100, seed: int = 0
) -> float:
    """Permutation p-value of MMD² with a Gaussian kernel, whose width is the median distance in the pool.

    What alibi-detect's MMDDrift does with its defaults.

    Args:
        images: the batch, `[n, …]`.
        reference: in-distribution images, `[m, …]`.
        permutations: of the pool.
        seed: of the permutations.

    Reference: A kernel two-sample test (Gretton et al. 2012).
    """
    pool = np.concatenate([images, reference]).reshape(len(images) + len(reference), -1)
    pool = pool.astype(np.float64) / 255
    squares = np.square(pool).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * pool @ pool.T, 0)
    off_diagonal = ~np.eye(len(pool), dtype=bool)
    kernel = np.exp(-distances / np.median(distances[off_diagonal]))
    np.fill_diagonal(kernel, 0)
    is_test = np.arange(len(pool)) < len(images)
    random = np.random.RandomState(seed)
    orders = [random.permutation(len(pool)) for _ in range(permutations)]
    null = [_mmd(kernel, is_test[order]) for order in orders]
    observed = _mmd(kernel, is_test)
    return float((1 + sum(value >= observed for value in null)) / (permutations + 1))


def _mmd(kernel: np.ndarray, is_test: np.ndarray) -> float:
    """Unbiased MMD²; the kernel's diagonal is zero."""
    n, m = is_test.sum(), (~is_test).sum()
    to_test = kernel @ is_test
    within = to_test[is_test].sum()
    between = to_test[~is_test].sum()
    others = kernel.sum() - within - 2 * between
    return within / (n * (n - 1)) + others / (m * (m - 1)) - 2 * between / (n * m)
