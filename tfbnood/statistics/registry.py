"""Finds statistics by name.

A user's own statistic is a class in the user's file:

    @tfbnood.statistics.register
    class Brightness(tfbnood.statistics.Statistic):
        name = "brightness"
        scope = "image"
        needs_model = False

        def _fit(self, model, reference):
            self.mean_ = reference.mean()

        def _score(self, images):
            return np.abs(images.mean(axis=(1, 2, 3)) - self.mean_)
"""

import importlib
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from tfbnood.errors import StatisticError

if TYPE_CHECKING:
    # Imports TensorFlow, which is not needed to list names.
    from tfbnood.statistics.base import Statistic

__all__ = ["check_name", "get", "names", "register"]

# Ours, by name: module and class below `tfbnood.statistics`. Imported on request, since most need TensorFlow.
_BUILT_IN = {
    "bn_delta": "bn_delta:BnDelta",
    "bn_delta_grouped": "bn_delta_grouped:BnDeltaGrouped",
    "bn_moments": "bn_moments:BnMoments",
    "bn_local": "bn_local:BnLocal",
    "bn_shift": "bn_shift:BnShift",
    "ensemble": "ensemble:Ensemble",
    "features": "features:Features",
    "log_prob": "likelihood:LogProb",
    "t_perm": "likelihood:TPerm",
    "waic": "several_models:Waic",
    "likelihood_ratio": "several_models:LikelihoodRatio",
    "typicality": "typicality:Typicality",
    "complexity": "likelihood:Complexity",
    "reconstruction": "reconstruction:Reconstruction",
    "latent_fit": "latent_fit:LatentFit",
    "pixel_pca": "pixels:PixelPca",
    "pixel_knn": "pixels:PixelKnn",
    "pretext": "pretext.statistic:Pretext",
}
# What to use when in doubt; docs/statistics.md explains why.
_AUTO = "ensemble"
_registered: "dict[str, type[Statistic]]" = {}

Class = TypeVar("Class", bound="type[Statistic]")


def register(statistic: Class) -> Class:
    """Registers a statistic under its `name`; use it as a decorator.

    Raises:
        StatisticError: if it is not a statistic, or another one has its name.

    Example:
        >>> @tfbnood.statistics.register
        ... class Brightness(tfbnood.statistics.Statistic):
        ...     name, scope, needs_model = "brightness", "image", False
        ...     def _fit(self, model, reference): self.mean_ = reference.mean()
        ...     def _score(self, images): return abs(images.mean(axis=(1, 2, 3)) - self.mean_)
        >>> tfbnood.Detector(None, "brightness", reference=x.train).score(x.test).shape
        (397,)
    """
    from tfbnood.statistics.base import Statistic

    if not (inspect.isclass(statistic) and issubclass(statistic, Statistic)):
        raise StatisticError(f"register takes a subclass of Statistic. Received: {statistic!r}")
    if getattr(statistic, "scope", None) not in ("image", "batch"):
        raise StatisticError(f'scope of {statistic.__name__} must be "image" or "batch"')
    name = statistic.name
    if name in (*_BUILT_IN, "auto") or _is_another(_registered.get(name), statistic):
        raise StatisticError(
            f"name must differ from those of other statistics. Received: {name!r}, which is taken"
        )
    _registered[name] = statistic
    return statistic


def names() -> tuple[str, ...]:
    """Names of all known statistics.

    Example:
        >>> "bn_delta" in tfbnood.statistics.names()
        True
    """
    return (*_BUILT_IN, *_registered)


def check_name(name: str) -> None:
    """Refuses an unknown name, without importing anything.

    Example:
        >>> check_name("bn_delta")
    """
    if name != "auto" and name not in names():
        raise StatisticError(
            f"statistic must be auto or one of {', '.join(names())}. Received: {name!r}"
        )


def get(statistic: "str | Statistic", **config: Any) -> "Statistic":
    """Returns a statistic by name, or the given one; "auto" is the best for single images and mixed streams.

    Example:
        >>> statistic = tfbnood.statistics.get("bn_delta", r1=0.0, r2=0.5)
        >>> statistic.name, statistic.r2
        ('bn_delta', 0.5)
    """
    from tfbnood.statistics.base import Statistic

    if isinstance(statistic, Statistic):
        return statistic
    check_name(statistic)
    name = _AUTO if statistic == "auto" else statistic
    try:
        return _class(name)(**config)
    except TypeError as error:
        raise StatisticError(f"{name} does not take these settings: {error}") from None


def _class(name: str) -> "type[Statistic]":
    if name in _registered:
        return _registered[name]
    module, _, member = _BUILT_IN[name].partition(":")
    return getattr(importlib.import_module(f"tfbnood.statistics.{module}"), member)


def _is_another(known: "type[Statistic] | None", statistic: "type[Statistic]") -> bool:
    """False for the same class defined again, as when a cell of a notebook is run twice."""
    return known is not None and (known.__module__, known.__qualname__) != (
        statistic.__module__,
        statistic.__qualname__,
    )
