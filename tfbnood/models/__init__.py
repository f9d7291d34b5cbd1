"""Likelihood models with batch normalisation; each is a `keras.Model`.

The classes are those of the registry and are loaded on first use: the shell asks for names without TensorFlow.
"""

from typing import Any

from tfbnood.models.registry import MODELS, model_class

_NAMES = {str(home).rpartition(":")[2]: name for name, home in MODELS.items()}

__all__ = ["LikelihoodModel", *_NAMES]


def __getattr__(name: str) -> Any:
    if name == "LikelihoodModel":
        from tfbnood.models.base import LikelihoodModel

        return LikelihoodModel
    if name not in _NAMES:
        raise AttributeError(f"module 'tfbnood.models' has no attribute {name!r}")
    return model_class(_NAMES[name])


def __dir__() -> list[str]:
    return sorted(__all__)
