"""Searches for sizes, learning rates and statistics, without outliers."""

from tfbnood.tuning.choose import CANDIDATES, RankedStatistic, choose_statistic, pseudo_aurocs
from tfbnood.tuning.run import Tuning, choose_statistic_for_best, ranking_table, split, tune
from tfbnood.tuning.search import METHODS
from tfbnood.tuning.trials import OBJECTIVES, SEARCHED, HyperModel, Trial

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
