"""Out-of-distribution detection with batch normalisation, for TensorFlow and Keras.

Public names are loaded on first use, so that `import tfbnood` and `tfbnood --help` do not wait for TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tfbnood._version import __version__

if TYPE_CHECKING:
    from tfbnood import (
        batch_tests,
        calibration,
        callbacks,
        conditional,
        data,
        metrics,
        models,
        plots,
        pseudo,
        serving,
        statistics,
        training,
        tuning,
    )
    from tfbnood.detector import Detector
    from tfbnood.evaluation import evaluate
    from tfbnood.shipped import list_models, load

__all__ = [
    "Detector",
    "__version__",
    "batch_tests",
    "calibration",
    "callbacks",
    "conditional",
    "data",
    "evaluate",
    "list_models",
    "load",
    "metrics",
    "models",
    "plots",
    "pseudo",
    "serving",
    "statistics",
    "training",
    "tuning",
]

_MODULES = frozenset(
    {
        "batch_tests",
        "calibration",
        "callbacks",
        "conditional",
        "data",
        "metrics",
        "models",
        "plots",
        "pseudo",
        "serving",
        "statistics",
        "training",
        "tuning",
    }
)
_MEMBERS = {
    "Detector": "detector",
    "evaluate": "evaluation",
    "list_models": "shipped",
    "load": "shipped",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tfbnood.{name}")
    if name in _MEMBERS:
        return getattr(importlib.import_module(f"tfbnood.{_MEMBERS[name]}"), name)
    raise AttributeError(f"module 'tfbnood' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
