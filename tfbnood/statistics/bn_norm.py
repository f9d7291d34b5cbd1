"""What statistics of batch normalisation share."""

from typing import Any

import numpy as np

from tfbnood.errors import StatisticError
from tfbnood.protocols import FeatureExtractor, Likelihood
from tfbnood.scoring.rules import batch_normalizations
from tfbnood.statistics.base import Statistic

__all__ = ["BatchNormStatistic", "MomentStatistic", "bn_delta", "check_ratios"]


def bn_delta(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Δ_{b,r1,r2}(x) = |S_{b,r1}(x) − S_{b,r2}(x)|."""
    return np.abs(low - high)


def check_ratios(r1: float, r2: float) -> None:
    if not 0 <= r1 < r2 <= 1:
        raise StatisticError(f"r1 and r2 must have 0 ≤ r1 < r2 ≤ 1. Received: r1={r1}, r2={r2}")


class BatchNormStatistic(Statistic):
    """A statistic of a model's batch normalisations."""

    def _check_model(self, model: Any) -> None:
        super()._check_model(model)
        if not batch_normalizations(model):
            raise StatisticError(
                f"{self.name} compares the moments of images with the moving ones, so the model must have "
                "keras.layers.BatchNormalization layers. Received: a model without any"
            )


class MomentStatistic(BatchNormStatistic):
    """A statistic of the moments alone, without likelihoods: any network with batch normalisation will do."""

    takes = (Likelihood, FeatureExtractor)
