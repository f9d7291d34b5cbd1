"""Out-of-distribution statistics, by name."""

from tfbnood._core.sampling import sample_of
from tfbnood.statistics.base import Statistic
from tfbnood.statistics.registry import get, names, register

__all__ = ["Statistic", "get", "names", "register", "sample_of"]
