"""The maximum mean discrepancy on raw pixels: the usual drift test, for comparison."""

import numpy as np

__all__ = ["mmd", "mmd_p_value"]


def mmd_p_value(
    images: np.ndarray, reference: np.ndarray, *, permutations: int = 100, seed: int = 0
) -> float:
    """Permutation p-value of MMD² with a Gaussian kernel, whose width is the median distance in the pool.

    This is what alibi-detect's MMDDrift does by default.

    Args:
        images: the batch, `[n, …]`.
        reference: in-distribution images, `[m, …]`.
        permutations: of the pool.
        seed: of the permutations.

    Reference: A kernel two-sample test (Gretton et al. 2012).
    """
    pool = np.concatenate([images, reference]).reshape(len(images) + len(reference), -1)
    pool = pool.astype(np.float32) / 255
    squares = np.square(pool).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * pool @ pool.T, 0)
    kernel = np.exp(-distances / np.median(distances))
    np.fill_diagonal(kernel, 0)
    is_test = np.arange(len(pool)) < len(images)
    random = np.random.RandomState(seed)
    null = np.stack([random.permutation(is_test) for _ in range(permutations)])
    observed, *others = mmd(kernel, np.concatenate([is_test[None], null]))
    return float((1 + np.sum(others >= observed)) / (permutations + 1))


def mmd(kernel: np.ndarray, is_test: np.ndarray) -> np.ndarray:
    """Unbiased MMD² of every row of masks `[k, n]`; the kernel's diagonal is zero."""
    test = is_test.astype(kernel.dtype)
    rest = 1 - test
    # One matrix product for all permutations.
    to_test = test @ kernel
    within, between = (to_test * test).sum(axis=1), (to_test * rest).sum(axis=1)
    others = kernel.sum(dtype=np.float64) - within - 2 * between
    n, m = test.sum(axis=1), rest.sum(axis=1)
    return within / (n * (n - 1)) + others / (m * (m - 1)) - 2 * between / (n * m)
