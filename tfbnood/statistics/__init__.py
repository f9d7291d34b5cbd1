"""Out-of-distribution statistics, by name.

Modules that need NumPy or TensorFlow are loaded on first use: the command line lists names without them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tfbnood.statistics.registry import get, names, register

if TYPE_CHECKING:
    from tfbnood._core.sampling import sample_of
    from tfbnood.statistics.base import Statistic

__all__ = ["Statistic", "get", "names", "register", "sample_of"]

_HOMES = {"Statistic": "tfbnood.statistics.base", "sample_of": "tfbnood._core.sampling"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tfbnood.statistics' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
