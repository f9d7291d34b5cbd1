"""Searches for sizes, learning rates and statistics, without outliers."""

from tfbnood.tuning.run import (
    CANDIDATES,
    METHODS,
    OBJECTIVES,
    SEARCHED,
    HyperModel,
    RankedStatistic,
    Trial,
    Tuning,
    choose_statistic,
    choose_statistic_for_best,
    pseudo_aurocs,
    ranking_table,
    split,
    tune,
)

__all__ = [
    "CANDIDATES",
    "METHODS",
    "OBJECTIVES",
    "SEARCHED",
    "HyperModel",
    "RankedStatistic",
    "Trial",
    "Tuning",
    "choose_statistic",
    "choose_statistic_for_best",
    "pseudo_aurocs",
    "ranking_table",
    "split",
    "tune",
]
