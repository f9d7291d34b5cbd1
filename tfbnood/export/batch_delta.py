"""Δ of a request, inside an export."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood.calibration.conformal import calibrate
from tfbnood.export.signatures import _conformal
from tfbnood.scoring.conditional import frozen_log_prob
from tfbnood.scoring.moments import log_prob_with_mixed_moments

__all__ = ["GROUP_SIZES"]

GROUP_SIZES = (1, 4, 16, 64)


class BatchDelta:
    """Δ of a request, which is one group, with mixed moments or with a bank of reference images.

    Rows that are not valid have no weight in mixed moments, and are reference images among mixed samples.
    No `tf.Module`: TensorFlow would find the functions in it and save each of them once more.
    """

    scope = "batch"  # with `score` all that `calibrate` needs to know of a statistic

    def __init__(self, model: Any, image_shape: tuple[int, int, int], bank: np.ndarray | None):
        self._ratios = (0.1, 0.9)
        self._bank = bank
        self._mixed, self._frozen = log_prob_with_mixed_moments(model), frozen_log_prob(model)
        specs = [tf.TensorSpec((None, *image_shape), tf.uint8), tf.TensorSpec((None,), tf.bool)]
        self._delta = tf.function(self._delta_of, input_signature=specs, autograph=False)

    def score(self, images: np.ndarray) -> np.ndarray:
        """Δ of a request of valid images."""
        return self._delta(images, np.ones(len(images), bool)).numpy().astype(np.float64)

    def calibrate(self, images: np.ndarray, progress: bool) -> None:
        """Learns the nulls of requests of several sizes."""
        self.sizes = tuple(size for size in GROUP_SIZES if 2 * size <= len(images))
        found = calibrate(self, images, group_sizes=self.sizes, progress=progress)
        self._images = Nulls([found.image_scores[size] for size in self.sizes])
        self._batches = Nulls([found.batch_scores[size] for size in self.sizes])

    def outputs(self, images: tf.Tensor, valid: tf.Tensor, fpr: float) -> dict[str, tf.Tensor]:
        """The outputs of `score_batch`."""
        delta = self._delta(images, valid)
        weights = tf.cast(valid, tf.float32)
        count = tf.reduce_sum(weights)
        # The largest calibrated size that the request has.
        index = tf.searchsorted(tf.constant(self.sizes, tf.float32), [count], side="right")[0] - 1
        index = tf.maximum(index, 0)
        p_value = _conformal(delta, self._images.of(index))
        mean = tf.reduce_sum(weights * delta) / tf.maximum(count, 1)
        batch_p_value = _conformal(mean[None], self._batches.of(index))[0]
        return {
            "delta": delta,
            "p_value": tf.where(valid, p_value, 0.0),
            "is_ood": (p_value <= fpr) | ~valid,
            "batch_p_value": tf.fill(tf.shape(delta), batch_p_value),
            "valid": valid,
        }

    def _delta_of(self, images: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        mix = self._with_moments if self._bank is None else self._with_samples
        low, high = (mix(images, valid, ratio) for ratio in self._ratios)
        return tf.where(valid, tf.abs(low - high), 0.0)

    def _with_moments(self, images: tf.Tensor, valid: tf.Tensor, ratio: float) -> tf.Tensor:
        weights = tf.cast(valid, tf.float32)
        weights /= tf.maximum(tf.reduce_sum(weights), 1)
        return self._mixed(images, weights, tf.constant(ratio, tf.float32))

    def _with_samples(self, images: tf.Tensor, valid: tf.Tensor, ratio: float) -> tf.Tensor:
        bank, count = tf.constant(self._bank), tf.shape(images)[0]
        size = tf.shape(bank)[0]
        images = tf.where(
            valid[:, None, None, None], images, tf.gather(bank, tf.range(count) % size)
        )
        others = tf.cast(tf.round(tf.cast(count, tf.float32) * (1 / ratio - 1)), tf.int32)
        companions = tf.gather(bank, tf.range(tf.maximum(others, 1)) % size)
        return self._frozen(tf.concat([images, companions], axis=0), True)[:count]


class Nulls:
    """Sorted calibration scores of several group sizes in one tensor."""

    def __init__(self, scores: list[np.ndarray]):
        self._flat = np.concatenate(scores).astype(np.float32)
        self._ends = np.cumsum([len(one) for one in scores])

    def of(self, index: tf.Tensor) -> tf.Tensor:
        ends = tf.constant([0, *self._ends], tf.int32)
        return tf.constant(self._flat)[ends[index] : ends[index + 1]]
