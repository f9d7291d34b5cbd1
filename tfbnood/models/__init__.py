"""Likelihood models with batch normalisation; each is a `keras.Model`, found by the registry."""

from typing import Any

from tfbnood.models.base import LikelihoodModel
from tfbnood.models.registry import MODELS, model_class

# Importing a class registers it with Keras, so that `keras.models.load_model` knows all of them.
_CLASSES = {model_class(name).__name__: model_class(name) for name in MODELS}

__all__ = ["LikelihoodModel", *_CLASSES]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module 'tfbnood.models' has no attribute {name!r}")
    return _CLASSES[name]


def __dir__() -> list[str]:
    return sorted(__all__)
