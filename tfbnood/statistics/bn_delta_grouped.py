"""Δ among companions of the same kind."""

from typing import Any

import numpy as np

from tfbnood.scoring.conditional import MixedMomentsLogProb
from tfbnood.statistics.bn_norm import BatchNormStatistic, bn_delta, check_ratios
from tfbnood.statistics.ensemble import Ensemble

__all__ = ["BnDeltaGrouped"]


class BnDeltaGrouped(BatchNormStatistic):
    """Δ with companions of the same kind: images are first ranked by `ensemble`, and neighbours in rank form batches.

    In a stream with few outliers, random companions are mostly in-distribution for all images, and Δ detects little.
    Ranking brings the outliers together at the top. Moments are mixed, not samples.

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
        self._ranking.fit(model, reference)
        self._restore(model)

    def get_state(self) -> dict[str, np.ndarray]:
        return {**self._ranking.get_state(), **super().get_state()}

    def set_state(self, model: Any, state: dict[str, np.ndarray]) -> None:
        self._ranking = Ensemble(pretext=False)
        self._ranking.set_state(model, state)
        super().set_state(model, {"image_shape_": state["image_shape_"]})

    def _restore(self, model: Any) -> None:
        self._mixed = MixedMomentsLogProb(model, batch_size=self.batch_size)

    def _score(self, images: np.ndarray) -> np.ndarray:
        alone = self._ranking.scorer(likelihood=True)(images, description="ranking")
        order = np.argsort(-alone["score"])
        size = min(self.batch_size, len(order))
        # The images ranked before it complete the last group.
        starts = np.minimum(np.arange(0, len(order), size), len(order) - size)
        groups = order[starts[:, None] + np.arange(size)]
        low, high = (
            self._mixed.of_groups(images, groups, ratio=ratio) if ratio else alone["log_prob"]
            for ratio in (self.r1, self.r2)
        )
        return bn_delta(low, high)
