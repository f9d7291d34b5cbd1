"""Out-of-distribution detection with batch normalisation, for TensorFlow and Keras.

Public names are loaded on first use, so that `import tfbnood` and `tfbnood --help` do not wait for TensorFlow.
"""

import importlib
from typing import Any

from tfbnood._version import __version__

# The one table of what is public, and where it lives: "package.module" or "package.module:name".
_HOMES = {
    "Detector": "tfbnood.detector:Detector",
    "Monitor": "tfbnood.monitor:Monitor",
    "OutlierDetector": "tfbnood.outlier_detector:OutlierDetector",
    "batch_tests": "tfbnood.calibration.batch_tests",
    "calibration": "tfbnood.calibration",
    "callbacks": "tfbnood.callbacks",
    "conditional": "tfbnood.scoring.conditional",
    "data": "tfbnood.data",
    "errors": "tfbnood.errors",
    "evaluate": "tfbnood.evaluation:evaluate",
    "fitting": "tfbnood.fitting",
    "list_models": "tfbnood.zoo:list_models",
    "load": "tfbnood.zoo:load",
    "metrics": "tfbnood.metrics",
    "models": "tfbnood.models",
    "monitor": "tfbnood.monitor",
    "networks": "tfbnood.networks",
    "plots": "tfbnood.plots",
    "pseudo": "tfbnood.data.pseudo",
    "report": "tfbnood.report",
    "serving": "tfbnood.serving",
    "statistics": "tfbnood.statistics",
    "training": "tfbnood.training",
    "tuning": "tfbnood.tuning",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tfbnood' has no attribute {name!r}")
    module, _, member = _HOMES[name].partition(":")
    found = importlib.import_module(module)
    return getattr(found, member) if member else found


def __dir__() -> list[str]:
    return sorted(__all__)
