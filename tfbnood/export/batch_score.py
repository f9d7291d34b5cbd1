"""Scores a request as a whole, inside an export: `bn_delta`, or `bn_shift` for a network, for several request sizes."""

import numpy as np
import tensorflow as tf

from tfbnood.calibration.conformal import calibrate
from tfbnood.errors import DataError
from tfbnood.protocols import Likelihood
from tfbnood.scoring.compiled import p_values
from tfbnood.statistics.base import EvidenceStatistic
from tfbnood.statistics.bn_delta import BnDelta
from tfbnood.statistics.bn_moments import BnMoments
from tfbnood.statistics.bn_shift import BnShift

__all__ = ["GROUP_SIZES", "BatchScore", "delta_of", "shift_of"]

GROUP_SIZES = (1, 4, 16, 64)


def delta_of(model: Likelihood, bank: np.ndarray | None, held_out: np.ndarray) -> BnDelta:
    """The paper's Δ: with a bank of reference images that complete batches, otherwise with mixed moments."""
    embedded = 0 if bank is None else len(bank)
    statistic = BnDelta(mixing="moments" if bank is None else "samples", reference_images=embedded)
    if bank is not None and len(bank) < statistic.batch_size:
        raise DataError(
            f"embed must hold at least {statistic.batch_size} images. Received: {len(bank)}"
        )
    statistic.fit(model, held_out if bank is None else bank)
    return statistic


def shift_of(statistic: EvidenceStatistic) -> BnShift | None:
    """The shift of a request's moments, in the subspace of the statistic's `bn_moments`; None if it has none."""
    members = getattr(statistic, "_members", [statistic])
    for member in members:
        if isinstance(member, BnMoments):
            return BnShift.of(member)
    return None


class BatchScore:
    """The function behind `score_batch`. Invalid rows are left out of the request.

    Args:
        statistic: fitted.
        held_out: in-distribution images to calibrate on.
        progress: show a bar on a terminal.
    """

    # Not a `tf.Module`: TensorFlow would find its functions and save each of them twice.

    def __init__(
        self, statistic: BnDelta | BnShift, held_out: np.ndarray, *, progress: bool = False
    ):
        self._statistic = statistic
        self._output = "delta" if isinstance(statistic, BnDelta) else "shift"
        self.sizes = tuple(size for size in GROUP_SIZES if 2 * size <= len(held_out))
        found = calibrate(statistic, held_out, group_sizes=self.sizes, progress=progress)
        self._images = _Nulls([found.image_scores[size] for size in self.sizes])
        self._batches = _Nulls([found.batch_scores[size] for size in self.sizes])

    @property
    def variables(self) -> list[tf.Variable]:
        """The reference images, if there are any."""
        return self._statistic.variables

    def outputs(self, images: tf.Tensor, valid: tf.Tensor, fpr: float) -> dict[str, tf.Tensor]:
        """The outputs of `score_batch`."""
        rows = tf.cast(tf.where(valid), tf.int32)
        count = tf.shape(rows)[0]
        found = self._statistic.tensor_score(tf.gather(images, rows[:, 0]))
        score = tf.scatter_nd(rows, found, tf.shape(valid))
        # The largest calibrated size that the request reaches.
        index = tf.searchsorted(tf.constant(self.sizes), [count], side="right")[0] - 1
        index = tf.maximum(index, 0)
        p_value = p_values(score, self._images.of(index))
        mean = tf.reduce_sum(found) / tf.cast(tf.maximum(count, 1), found.dtype)
        batch_p_value = p_values(mean[None], self._batches.of(index))[0]
        return {
            self._output: tf.cast(score, tf.float32),
            "p_value": tf.cast(tf.where(valid, p_value, 0.0), tf.float32),
            "is_ood": (p_value <= fpr) | ~valid,
            "batch_p_value": tf.fill(tf.shape(valid), tf.cast(batch_p_value, tf.float32)),
            "valid": valid,
        }


class _Nulls:
    """Sorted calibration scores of several group sizes in one tensor."""

    def __init__(self, scores: list[np.ndarray]):
        self._flat = np.concatenate(scores)
        self._ends = np.cumsum([len(one) for one in scores])

    def of(self, index: tf.Tensor) -> tf.Tensor:
        ends = tf.constant([0, *self._ends], tf.int32)
        return tf.constant(self._flat, tf.float64)[ends[index] : ends[index + 1]]
