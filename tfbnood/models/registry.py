"""The one list of likelihood models: training and tuning read it."""

import importlib
from typing import TYPE_CHECKING, Any

from tfbnood.errors import TfbnoodError

if TYPE_CHECKING:
    from tfbnood.models.base import LikelihoodModel

__all__ = ["MODELS", "model_class"]

# By name: module and class. A value may also be a class itself.
MODELS: dict[str, Any] = {
    "realnvp": "tfbnood.models.real_nvp:RealNVP",
    "vae": "tfbnood.models.vae:VAE",
    "pixelcnn": "tfbnood.models.pixelcnn:PixelCNN",
}


def model_class(name: str) -> "type[LikelihoodModel]":
    """The class of a model by its name.

    Example:
        >>> model_class("vae").__name__
        'VAE'
    """
    if name not in MODELS:
        raise TfbnoodError(f"model must be one of {', '.join(MODELS)}. Received: model={name!r}")
    home = MODELS[name]
    if not isinstance(home, str):
        return home
    module, _, member = home.partition(":")
    return getattr(importlib.import_module(module), member)
