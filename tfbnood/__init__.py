"""Out-of-distribution detection with batch normalisation, for TensorFlow and Keras.

Public names are loaded on first use, so that `import tfbnood` and `tfbnood --help` do not wait for TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tfbnood._version import __version__

if TYPE_CHECKING:
    from tfbnood import data, models, training

__all__ = ["__version__", "data", "models", "training"]

_MODULES = frozenset({"data", "models", "training"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tfbnood.{name}")
    raise AttributeError(f"module 'tfbnood' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
