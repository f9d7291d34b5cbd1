"""Values as normal scores, by their rank among reference values."""

import numpy as np
import tensorflow as tf

__all__ = ["normal_scores", "tables"]

_QUANTILES = 201


def tables(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `normal_scores` needs of `[n, m]` values: quantiles `[m, q]`, and slopes at both ends `[m, 2]`."""
    count = min(_QUANTILES, len(scores))
    values = np.quantile(scores, _shares(count), axis=0).T
    low, lower, higher, high = np.quantile(scores, (0.01, 0.1, 0.9, 0.99), axis=0)
    span = 2.326 - 1.282  # the distance of these quantiles in normal scores
    tiny = 1e-6 * (1 + np.abs(scores).max(axis=0))
    widths = np.stack([lower - low, high - higher], axis=1)
    slopes = span / np.maximum(widths, tiny[:, None])
    return values.astype(np.float32), slopes.astype(np.float32)


def normal_scores(values: tf.Tensor, knots: np.ndarray, slopes: np.ndarray) -> tf.Tensor:
    """Normal scores of `[n, m]` values, by their rank among those from which the tables were made."""
    from scipy.stats import norm

    heights = norm.ppf(_shares(knots.shape[1])).astype(np.float32)
    columns = [
        _interpolate(values[:, index], knots[index], heights, slopes[index])
        for index in range(len(knots))
    ]
    return tf.stack(columns, axis=1)


def _shares(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count


def _interpolate(
    values: tf.Tensor, knots: np.ndarray, heights: np.ndarray, slopes: np.ndarray
) -> tf.Tensor:
    """Linear between the knots; beyond them the height grows with the logarithm of the distance."""
    after = tf.clip_by_value(tf.searchsorted(knots, values), 1, len(knots) - 1)
    left, right = tf.gather(knots, after - 1), tf.gather(knots, after)
    share = (values - left) / tf.maximum(right - left, 1e-12)
    inside = tf.gather(heights, after - 1) + tf.clip_by_value(share, 0.0, 1.0) * (
        tf.gather(heights, after) - tf.gather(heights, after - 1)
    )
    below = tf.math.log1p(slopes[0] * tf.nn.relu(knots[0] - values))
    above = tf.math.log1p(slopes[1] * tf.nn.relu(values - knots[-1]))
    return inside - below + above
