"""The subspace of the reference images' moments, from which `bn_moments` and `bn_shift` measure distances."""

from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["coordinates", "fit_subspace", "residuals"]


def fit_subspace(
    rows: np.ndarray, components: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and standard deviation of every column, `[f]`, and principal components of the standardised rows, `[k, f]`.

    Args:
        rows: `[n, f]`.
        components: maximum number, and never more than a quarter of the rows: few images span only a small subspace,
            from which every new image would be far.
        seed: of scikit-learn's randomised solver.
    """
    from sklearn.decomposition import PCA

    mean = rows.mean(axis=0)
    # Guard against channels that are constant over all reference images.
    scale = np.maximum(rows.std(axis=0), 1e-3)
    standard = rows - mean
    standard /= scale  # In place, as is what follows: the rows of a large network are gigabytes.
    count = min(components, max(1, len(rows) // 4), rows.shape[1] - 1)
    pca = PCA(count, copy=False, random_state=seed, svd_solver="randomized").fit(standard)
    return mean, scale, pca.components_


def residuals(rows: tf.Tensor, mean: Any, scale: Any, axes: tf.Tensor) -> tf.Tensor:
    """Standardised rows minus their projections onto the subspace, `[n, f]`."""
    standard = _standardise(rows, mean, scale)
    return standard - tf.matmul(tf.matmul(standard, axes, transpose_b=True), axes)


def coordinates(rows: tf.Tensor, mean: Any, scale: Any, axes: tf.Tensor) -> tf.Tensor:
    """Standardised rows in the subspace, `[n, k]`."""
    return tf.matmul(_standardise(rows, mean, scale), axes, transpose_b=True)


def _standardise(rows: tf.Tensor, mean: Any, scale: Any) -> tf.Tensor:
    # Clipped: one wild channel must not drown the others' digits in float32.
    return tf.clip_by_value((rows - mean) / scale, -30.0, 30.0)
