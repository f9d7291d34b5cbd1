"""Serving: a client of TensorFlow Serving's REST API, and a development server that speaks it.

Public names are loaded on first use; the client never loads TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfbnood.serving.client import Client, Scores, ServingError
    from tfbnood.serving.standin.config import ModelConfig, models_from
    from tfbnood.serving.standin.server import Server

__all__ = ["Client", "ModelConfig", "Scores", "Server", "ServingError", "models_from"]

_HOMES = {
    "Client": "client",
    "ModelConfig": "standin.config",
    "Scores": "client",
    "Server": "standin.server",
    "ServingError": "client",
    "models_from": "standin.config",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"tfbnood.serving.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tfbnood.serving' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
