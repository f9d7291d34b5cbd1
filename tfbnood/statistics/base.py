"""The base classes of out-of-distribution statistics."""

import abc
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from tfbnood._core.cards import card
from tfbnood._core.images import as_images
from tfbnood._core.progress import showing
from tfbnood.errors import NotFittedError, StatisticError
from tfbnood.networks.network import as_model
from tfbnood.protocols import FeatureExtractor, Likelihood
from tfbnood.scoring.compiled import Scorer
from tfbnood.scoring.evidence import Evidence, Need, widest
from tfbnood.scoring.frozen import FrozenModel, freeze
from tfbnood.statistics.rounding import as_bytes, factor_name, with_factors

__all__ = ["EvidenceStatistic", "Statistic", "scorer_of"]

Assign = Callable[["EvidenceStatistic", Evidence], tf.Tensor]

# Values of an array that is worth rounding to bytes: the errors of fewer would not average out.
_LARGE = 2**16

# What a model lacks, in the words of an error.
_WANTED: dict[type, str] = {
    Likelihood: "have a method log_prob(images, training=…)",
    FeatureExtractor: "be a Keras network",
}


class Statistic(abc.ABC):
    """A score for images: **higher means more out-of-distribution**.

    Subclasses set `name` and `scope` and implement `_fit` and `_score`; constructor arguments are stored in attributes
    of the same name. Attributes that `_fit` learns end in `_`; arrays and numbers among them are saved with a detector,
    and `_restore` makes the others again.

    Attributes:
        name: its name in `Detector(statistic=…)`.
        scope: "image" if an image's score depends only on that image, "batch" if also on its companions.
        needs_model: False for statistics of the pixels alone.
        takes: protocols, one of which a model must have.
        image_shape_: shape of the images it was fitted to.

    Example:
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, x.train)
        >>> statistic.scope, statistic.score(x.test[:5]).shape
        ('image', (5,))
    """

    name: ClassVar[str]
    scope: ClassVar[Literal["image", "batch"]]
    needs_model: ClassVar[bool] = True
    takes: ClassVar[tuple[type, ...]] = (Likelihood,)
    minimum_reference: int = 2

    def fit(self, model: Any, reference: Any, *, progress: bool | None = None) -> "Statistic":
        """Learns what in-distribution looks like.

        Args:
            model: has `log_prob(images, training=…)`, or is any Keras network; a list of models for `waic`.
            reference: in-distribution images, `[n, height, width, channels]` in 0–255.
            progress: show a bar on a terminal.
        """
        reference = as_images(reference, getattr(model, "image_shape", None), name="reference")
        model = as_model(model, reference.shape[1:])
        if len(reference) < self.minimum_reference:
            raise StatisticError(
                f"reference must hold at least {self.minimum_reference} images for {self.name}. "
                f"Received: {len(reference)}"
            )
        self.image_shape_ = reference.shape[1:]
        self._check_model(model)
        with showing(progress):
            self._fit(model, reference)
        return self

    def score(self, images: Any, *, progress: bool | None = None) -> np.ndarray:
        """Scores images, float64 `[n]`; higher means more out-of-distribution.

        With scope "batch" the images are each other's companions.
        """
        if not hasattr(self, "image_shape_"):
            raise NotFittedError(
                f"call fit() with a model and reference images before {self.name}.score()"
            )
        images = as_images(images, self.image_shape_)
        with showing(progress), np.errstate(invalid="ignore"):  # Reported below.
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
        """Refuses a model that the statistic cannot use or would ignore."""
        takes = self.takes if self.needs_model else (Likelihood, FeatureExtractor)
        if isinstance(model, takes) or (model is None and not self.needs_model):
            return
        wanted = " or ".join(_WANTED[protocol] for protocol in takes)
        cure = "give None to score by pixels alone"
        if isinstance(model, FeatureExtractor):
            cure = "for a network use features, bn_moments, bn_shift, bn_local or auto"
        elif self.needs_model:
            cure = "without a model use statistics of pixels, such as pixel_pca"
        raise StatisticError(
            f"model must {wanted} for {self.name}; {cure}. Received: {type(model).__name__}"
        )

    def _restore(self, model: Any) -> None:  # noqa: B027 (most have nothing to restore)
        """Restores after loading what is neither an array nor a number."""

    def __repr__(self) -> str:
        shape = getattr(self, "image_shape_", None)
        settings = [f"{key}={value!r}" for key, value in self._settings(changed=True).items()]
        state = "not fitted" if shape is None else f"fitted to {shape}"
        return f"<{self.name} {', '.join([*settings, state])}>"

    def _repr_html_(self) -> str:
        shape = getattr(self, "image_shape_", None)
        facts = {
            "scores": "every image on its own"
            if self.scope == "image"
            else "images among companions",
            "fitted to": "nothing yet" if shape is None else f"images of {shape}",
        }
        return card(self.name, {**facts, **{k: repr(v) for k, v in self._settings().items()}})

    def _settings(self, *, changed: bool = False) -> dict[str, Any]:
        """The constructor's arguments, or those that differ from the defaults, as far as they are stored."""
        return {
            key: getattr(self, key)
            for key, parameter in inspect.signature(type(self)).parameters.items()
            if hasattr(self, key)
            and not (changed and _are_equal(getattr(self, key), parameter.default))
        }

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

    def _fitted_names(self) -> tuple[str, ...] | None:
        """The keys of `get_state` besides `image_shape_`; None if a statistic does not declare them."""
        return None

    def set_state(self, model: Any, state: dict[str, np.ndarray]) -> None:
        """Restores what `get_state` returned, all of it and nothing else."""
        if (names := self._fitted_names()) is not None:
            state = with_factors(state, names)
            if unknown := state.keys() - {*names, "image_shape_"}:
                raise StatisticError(f"{self.name} has no {min(unknown)[:80]!r}")
            if missing := set(names) - state.keys():
                raise StatisticError(f"{self.name} lacks {min(missing)!r}")
        for key, value in state.items():
            # Names come from a file; none may replace a method, a setting or a part of the object itself.
            if not key.endswith("_") or key.startswith("_") or hasattr(type(self), key):
                raise StatisticError(f"{self.name} has no {key[:80]!r}")
            setattr(self, key, value)
        self.image_shape_ = tuple(int(side) for side in state["image_shape_"])
        model = as_model(model, self.image_shape_)
        self._check_model(model)
        self._restore(model)


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two settings are equal; arrays are not compared."""
    return one is other or (type(one) is type(other) and repr(one) == repr(other))


class EvidenceStatistic(Statistic):
    """A statistic of single images in TensorFlow operations. Subclasses set `need` and implement `tensor_score`.

    Attributes:
        need: what it uses of an `Evidence`.
        one_sided: the weight of its score when `ensemble` sums the members for which only high values mean
            out-of-distribution; 0 for others: a likelihood, or a distance of pixels, is as often too low as too high.
        large: names of large fitted arrays; read with `_large`, they are stored in an export once, however many
            signatures read them. Those that `_keep_bytes` keeps are followed by their factors.
    """

    scope = "image"
    need: Need
    one_sided: ClassVar[float] = 0.0
    large: ClassVar[tuple[str, ...]] = ()

    @property
    def variables(self) -> list[tf.Variable]:
        """The large arrays."""
        return [self._variable(name) for name in self.large]

    def prepare(self) -> None:
        """Makes the variables before tracing functions that read them: a function that makes them is traced twice."""
        _ = self.variables

    def _large(self, name: str) -> tf.Tensor:
        """A large array, as float32."""
        values, factor = tf.cast(self._variable(name), tf.float32), factor_name(name)
        return values * self._variable(factor) if factor in self.large else values

    def _keep_bytes(self, name: str, array: np.ndarray, axis: int) -> None:
        """Keeps an array as bytes, with one factor for all values along an axis; a small one in half precision."""
        values, factor = array.astype(np.float16), np.ones((), np.float32)
        if array.size >= _LARGE:
            values, factor = as_bytes(array, axis)
        setattr(self, name, values)
        setattr(self, factor_name(name), factor)

    def _variable(self, name: str) -> tf.Variable:
        with self._lock:  # A variable that another thread's graph reads must not be replaced.
            if name not in self._variables:
                with tf.init_scope():  # Even if first read while a graph is traced.
                    self._variables[name] = tf.Variable(getattr(self, name), trainable=False)
            return self._variables[name]

    @abc.abstractmethod
    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        """Scores a batch, float32 `[n]`; rows are independent."""

    def tensor_columns(self, evidence: Evidence) -> tf.Tensor:
        """What `ensemble` uses of it, `[n, k]`: the score, and further values if it has any."""
        return self.tensor_score(evidence)[:, None]

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)

    def _restore(self, model: Any) -> None:
        # The current weights: what is fitted and calibrated to them is not used with others. Held here, since compiled
        # functions only keep weak references.
        self._model = freeze(model)
        self._variables: dict[str, tf.Variable] = {}
        self._scorers: dict[tuple[bool, Assign | None], Scorer] = {}
        self._lock = threading.RLock()

    def check_unchanged(self) -> None:
        """Refuses a model that was trained further since the fit: scores would be those of the old weights."""
        if isinstance(self._model, FrozenModel) and not self._model.is_current:
            raise StatisticError(
                "the model must be as it was when the detector was fitted: make a new Detector with it. "
                "Received: a model with other weights"
            )

    def scorer(self, *, likelihood: bool = False, assign: Assign | None = None) -> Scorer:
        """The compiled function behind the scores, shared by all callers.

        Args:
            likelihood: also return log p and bits per dimension; the model must have `log_prob`.
            assign: also return the cluster of every image, in the same pass: statistic and evidence → int32 `[n]`.
        """
        likelihood = likelihood and self.need == "pixels"  # Those that need more return it anyway.
        with self._lock:
            key = (likelihood, assign)
            if key not in self._scorers:
                self.prepare()
                self._scorers[key] = Scorer(
                    self._model,
                    self.need,
                    self.tensor_score,
                    self.image_shape_,
                    likelihood=likelihood,
                    assign=None if assign is None else functools.partial(assign, self),
                )
            return self._scorers[key]

    def _score(self, images: np.ndarray) -> np.ndarray:
        return self.scorer()(images, description=self.name)["score"]

    def __copy__(self) -> "EvidenceStatistic":
        """A copy to fit again: compiled functions and variables stay with the original."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        if hasattr(self, "_model"):
            copied._restore(getattr(self._model, "unfrozen", self._model))
        return copied


def scorer_of(statistics: Sequence[EvidenceStatistic]) -> Scorer:
    """One pass for several statistics that were fitted to one model: scores are `[n, statistics]`."""
    for one in statistics:
        one.prepare()
    return Scorer(
        statistics[0]._model,
        widest(*(one.need for one in statistics)),
        lambda evidence: tf.stack([one.tensor_score(evidence) for one in statistics], axis=1),
        statistics[0].image_shape_,
        likelihood=False,
    )
