"""Serving: a client of TensorFlow Serving's REST API, and a development server that speaks it.

Public names are loaded on first use; the client never loads TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfbnood.errors import ServingError
    from tfbnood.serving.client import Client, Scores
    from tfbnood.serving.standin.config import ModelConfig, models_from
    from tfbnood.serving.standin.server import Server

__all__ = ["Client", "ModelConfig", "Scores", "Server", "ServingError", "models_from"]

_HOMES = {
    "Client": "tfbnood.serving.client",
    "ModelConfig": "tfbnood.serving.standin.config",
    "Scores": "tfbnood.serving.client",
    "Server": "tfbnood.serving.standin.server",
    "ServingError": "tfbnood.errors",
    "models_from": "tfbnood.serving.standin.config",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tfbnood.serving' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
