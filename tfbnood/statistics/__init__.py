"""Out-of-distribution statistics, by name."""

from tfbnood.statistics.base import Statistic, get, names, register, sample_of

__all__ = ["Statistic", "get", "names", "register", "sample_of"]
