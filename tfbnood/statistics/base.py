"""What every out-of-distribution statistic is, and how one is found by name.

A user's own statistic is a class in a file of their own:

    @tfbnood.statistics.register
    class Brightness(tfbnood.statistics.Statistic):
        name = "brightness"
        scope = "image"

        def _fit(self, model, reference):
            self.mean_ = reference.mean()

        def _score(self, images):
            return np.abs(images.mean(axis=(1, 2, 3)) - self.mean_)
"""

import abc
import importlib
import inspect
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from tfbnood.errors import NotFittedError, StatisticError
from tfbnood._core.images import as_images

__all__ = ["Statistic", "get", "names", "register", "sample_of"]

_BUILT_IN = {
    "bn_delta": "tfbnood.statistics.bn_statistics",
    "bn_delta_grouped": "tfbnood.statistics.bn_statistics",
    "bn_moments": "tfbnood.statistics.bn_statistics",
    "ensemble": "tfbnood.statistics.ensemble",
    "log_prob": "tfbnood.statistics.likelihood",
    "t_perm": "tfbnood.statistics.likelihood",
    "waic": "tfbnood.statistics.likelihood",
    "likelihood_ratio": "tfbnood.statistics.likelihood",
    "typicality": "tfbnood.statistics.likelihood",
    "complexity": "tfbnood.statistics.likelihood",
    "reconstruction": "tfbnood.statistics.likelihood",
    "latent_fit": "tfbnood.statistics.latent_statistics",
    "pixel_pca": "tfbnood.statistics.pixels",
    "pixel_knn": "tfbnood.statistics.pixels",
    "pretext": "tfbnood.statistics.pretext_statistic",
}
# What to use when in doubt; docs/statistics.md says why.
_AUTO = "ensemble"
_registered: dict[str, type["Statistic"]] = {}


class Statistic(abc.ABC):
    """A score for images: **higher means more out-of-distribution**.

    Subclasses set `name` and `scope` and implement `_fit` and `_score`; constructor arguments are kept as
    attributes of the same name. What `_fit` learns ends in `_`; arrays and numbers among it are saved with a
    detector, anything else is made again by `_restore`.

    Attributes:
        name: what it is called in `Detector(statistic=…)`.
        scope: "image" when an image's score depends on that image alone, "batch" when also on its companions.
        needs_model: False for statistics of the pixels alone.
        image_shape_: shape of the images it was fitted to.

    Example:
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, x.train)
        >>> statistic.scope, statistic.score(x.test[:5]).shape
        ('image', (5,))
    """

    name: ClassVar[str]
    scope: ClassVar[Literal["image", "batch"]]
    needs_model: ClassVar[bool] = True
    minimum_reference: int = 2

    def fit(self, model: Any, reference: Any, *, progress: bool = False) -> "Statistic":
        """Learns what in-distribution looks like.

        Args:
            model: has `log_prob(images, training=…)`; a list of models for `waic`.
            reference: in-distribution images, `[n, height, width, channels]` in 0–255.
            progress: show a bar on a terminal.
        """
        self._progress = progress
        reference = as_images(reference, getattr(model, "image_shape", None), name="reference")
        if len(reference) < self.minimum_reference:
            raise StatisticError(
                f"reference must hold at least {self.minimum_reference} images for {self.name}. "
                f"Received: {len(reference)}"
            )
        self.image_shape_ = reference.shape[1:]
        self._check_model(model)
        self._fit(model, reference)
        return self

    def score(self, images: Any, *, progress: bool = False) -> np.ndarray:
        """Scores images, float64 `[n]`; higher means more out-of-distribution.

        With scope "batch" the images are each other's companions.
        """
        if not hasattr(self, "image_shape_"):
            raise NotFittedError(
                f"call fit() with a model and reference images before {self.name}.score()"
            )
        self._progress = progress
        images = as_images(images, self.image_shape_)
        with np.errstate(invalid="ignore"):  # Said below, in a sentence.
            return self.checked(self._score(images))

    def checked(self, scores: Any) -> np.ndarray:
        """The scores as float64, if all are finite."""
        scores = np.asarray(scores, np.float64)
        if not np.isfinite(scores).all():
            raise StatisticError(
                f"{self.name} gave scores that are not finite for {np.sum(~np.isfinite(scores))} of {len(scores)} "
                "images: the model's log_prob must be finite"
            )
        return scores

    @abc.abstractmethod
    def _fit(self, model: Any, reference: np.ndarray) -> None:
        """Learns from checked uint8 images."""

    @abc.abstractmethod
    def _score(self, images: np.ndarray) -> np.ndarray:
        """Scores checked uint8 images, `[n]`."""

    def _check_model(self, model: Any) -> None:
        if self.needs_model and not callable(getattr(model, "log_prob", None)):
            raise StatisticError(
                f"model must have a method log_prob(images, training=…) for {self.name}. "
                f"Received: {type(model).__name__}"
            )

    def _restore(self, model: Any) -> None:  # noqa: B027 (most have nothing to make again)
        """Makes again, after loading, what is neither an array nor a number."""

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {key: getattr(self, key) for key in inspect.signature(type(self)).parameters}

    def get_state(self) -> dict[str, np.ndarray]:
        """What `fit` learned, as arrays."""
        return {
            key: np.asarray(value)
            for key, value in vars(self).items()
            if key.endswith("_")
            and isinstance(value, np.ndarray | np.generic | int | float | tuple)
        }

    def set_state(self, model: Any, state: dict[str, np.ndarray]) -> None:
        """Brings back what `get_state` gave."""
        for key, value in state.items():
            setattr(self, key, value)
        self.image_shape_ = tuple(int(side) for side in state["image_shape_"])
        self._check_model(model)
        self._restore(model)


def sample_of(reference: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Takes at most `count` random images: the first ones of a user's file may all be of one class.

    Example:
        >>> tfbnood.statistics.sample_of(x.train, 5).shape
        (5, 8, 8, 1)
    """
    return reference[np.random.RandomState(seed).permutation(len(reference))[:count]]


Class = TypeVar("Class", bound=type[Statistic])


def register(statistic: Class) -> Class:
    """Makes a statistic known by its `name`; use it as a decorator.

    Example:
        >>> @tfbnood.statistics.register
        ... class Brightness(tfbnood.statistics.Statistic):
        ...     name, scope, needs_model = "brightness", "image", False
        ...     def _fit(self, model, reference): self.mean_ = reference.mean()
        ...     def _score(self, images): return abs(images.mean(axis=(1, 2, 3)) - self.mean_)
        >>> tfbnood.Detector(None, "brightness", reference=x.train).score(x.test).shape
        (397,)
    """
    if not (inspect.isclass(statistic) and issubclass(statistic, Statistic)):
        raise StatisticError(f"register takes a subclass of Statistic. Received: {statistic!r}")
    if getattr(statistic, "scope", None) not in ("image", "batch"):
        raise StatisticError(f'scope of {statistic.__name__} must be "image" or "batch"')
    _registered[statistic.name] = statistic
    return statistic


def names() -> tuple[str, ...]:
    """Names of all known statistics.

    Example:
        >>> "bn_delta" in tfbnood.statistics.names()
        True
    """
    return tuple(dict.fromkeys([*_BUILT_IN, *_registered]))


def get(statistic: "str | Statistic", **config: Any) -> Statistic:
    """Returns a statistic by name, or the given one as it is; "auto" is the best for single images and mixed streams.

    Example:
        >>> statistic = tfbnood.statistics.get("bn_delta", r1=0.0, r2=0.5)
        >>> statistic.name, statistic.r2
        ('bn_delta', 0.5)
    """
    if isinstance(statistic, Statistic):
        return statistic
    statistic = _AUTO if statistic == "auto" else statistic
    if statistic not in _registered and statistic in _BUILT_IN:
        importlib.import_module(_BUILT_IN[statistic])
    if statistic not in _registered:
        raise StatisticError(
            f"statistic must be auto or one of {', '.join(names())}. Received: {statistic!r}"
        )
    try:
        return _registered[statistic](**config)
    except TypeError as error:
        raise StatisticError(f"{statistic} does not take these settings: {error}") from None
