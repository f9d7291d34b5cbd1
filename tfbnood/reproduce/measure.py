"""By name of a stage, the function that measures it for a study; its result is JSON-safe."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tfbnood.reproduce.context import StudyContext
from tfbnood.reproduce.measure_batches import measure_batch_means, measure_batch_tests, measure_mmd
from tfbnood.reproduce.measure_likelihoods import measure_bits, measure_shares
from tfbnood.reproduce.measure_samples import measure_fooled
from tfbnood.reproduce.measure_speed import measure_speed
from tfbnood.reproduce.measure_statistics import (
    measure_deltas,
    measure_draws,
    measure_ensemble,
    measure_ratio,
    measure_statistics,
    measure_waic,
)
from tfbnood.reproduce.measure_training import describe_training

__all__ = ["MEASURES"]

MEASURES: Mapping[str, Callable[[StudyContext], Any]] = MappingProxyType(
    {
        "training": describe_training,
        "bits": measure_bits,
        "ensemble": measure_ensemble,
        "statistics": measure_statistics,
        "deltas": measure_deltas,
        "waic": measure_waic,
        "shares": measure_shares,
        "fooled": measure_fooled,
        "batches": measure_batch_tests,
        "batch_means": measure_batch_means,
        "mmd": measure_mmd,
        "speed": measure_speed,
        "draws": measure_draws,
        "ratio": measure_ratio,
    }
)
