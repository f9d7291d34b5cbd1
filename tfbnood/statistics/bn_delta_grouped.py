"""Δ among companions of one's own kind."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.batching import map_batches
from tfbnood.scoring.conditional import MixedMomentsLogProb
from tfbnood.statistics.bn_norm import BatchNormStatistic, bn_delta, check_ratios
from tfbnood.statistics.ensemble import Ensemble

__all__ = ["BnDeltaGrouped"]


class BnDeltaGrouped(BatchNormStatistic):
    """Δ with companions of one's own kind: images are ranked by `ensemble` first, and neighbours in rank form batches.

    In a stream with few outliers random companions are mostly in-distribution for all images, and Δ tells little.
    Ranked, the outliers come together at the top. Moments are mixed, not samples.

    Args:
        r1: the lower share of test images in a batch. Defaults to 0, evaluation mode.
        r2: the higher share. Defaults to 0.9.
        batch_size: images in a group. Defaults to 32: smaller groups are purer, larger ones less noisy.

    Example:
        >>> statistic = tfbnood.statistics.get("bn_delta_grouped").fit(model, x.train[:100])
        >>> inliers, outliers = statistic.score(x.test[:64]), statistic.score(255 - x.test[:64])
        >>> bool(inliers.mean() < outliers.mean())
        True
    """

    name = "bn_delta_grouped"
    scope = "batch"

    def __init__(self, *, r1: float = 0.0, r2: float = 0.9, batch_size: int = 32):
        check_ratios(r1, r2)
        self.r1 = r1
        self.r2 = r2
        self.batch_size = batch_size

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._ranking = Ensemble(pretext=False)
        self._ranking.fit(model, reference, progress=self._progress)
        self._mixed = MixedMomentsLogProb(model, batch_size=self.batch_size)

    def get_state(self) -> dict[str, np.ndarray]:
        return {**self._ranking.get_state(), **super().get_state()}

    def set_state(self, model: Any, state: dict[str, np.ndarray]) -> None:
        self._ranking = Ensemble(pretext=False)
        self._ranking.set_state(model, state)
        super().set_state(model, {"image_shape_": state["image_shape_"]})

    def _restore(self, model: Any) -> None:
        self._mixed = MixedMomentsLogProb(model, batch_size=self.batch_size)

    def _score(self, images: np.ndarray) -> np.ndarray:
        ranks, log_probs = map_batches(self._alone, images, progress=self._progress).T
        order = np.argsort(-ranks)
        starts = range(0, len(images), self.batch_size)
        # The last group is completed by those ranked before it.
        groups = [
            order[max(0, min(start, len(order) - self.batch_size)) :][: self.batch_size]
            for start in starts
        ]
        low, high = (
            self._mixed.of_groups(images, groups, ratio=ratio, progress=self._progress)
            if ratio
            else log_probs
            for ratio in (self.r1, self.r2)
        )
        return bn_delta(low, high)

    def _alone(self, batch: np.ndarray) -> tf.Tensor:
        """Of every image its score by `ensemble` and log p in evaluation mode, `[n, 2]`."""
        evidence = self._ranking._gather(batch)
        return tf.stack([self._ranking.tensor_score(evidence), evidence.log_prob], axis=1)
