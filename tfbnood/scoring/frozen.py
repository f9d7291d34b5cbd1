"""Models that do not change while they are used: functions compiled once per model, and frozen weights."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbnood.protocols import FeatureExtractor, Likelihood

__all__ = [
    "FrozenLikelihood",
    "FrozenModel",
    "FrozenNetwork",
    "freeze",
    "frozen_features",
    "frozen_log_prob",
    "once_per_model",
]

# Larger weights stay variables: graph optimisation copies constants several times.
_MOST_BYTES = 64_000_000


def once_per_model(trace: Callable) -> Callable:
    """Turns `trace(model, …)` into a function `model → tf.function` that compiles once per model."""
    compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    lock = threading.Lock()

    def function_of(model: Any) -> Any:
        with lock:  # Two threads must not both trace: it takes seconds.
            if model not in compiled:
                # Weak: the function lives as long as the model, and must not keep it alive.
                reference = weakref.ref(model)
                compiled[model] = tf.function(
                    lambda *inputs: trace(reference(), *inputs), autograph=False
                )
            return compiled[model]

    function_of.__doc__ = trace.__doc__
    function_of.__name__ = trace.__name__
    return function_of


@once_per_model
def frozen_log_prob(model: Likelihood, images: tf.Tensor, training: bool) -> tf.Tensor:
    """Compiles `model.log_prob` as `(images, training) → [n]`, without changing any variable.

    Works for any model with `log_prob(images, training=…)`: updates of moving moments are caught and dropped.

    Example:
        >>> log_prob = frozen_log_prob(model)
        >>> log_prob(x.test[:64], True).shape
        TensorShape([64])
    """
    with keras.StatelessScope():
        return model.log_prob(images, training=training)


@once_per_model
def frozen_features(model: FeatureExtractor, images: tf.Tensor) -> tf.Tensor:
    """Compiles `model.features` as `images → [n, f]` in evaluation mode, without changing any variable."""
    with keras.StatelessScope():
        return model.features(images, training=False)


class FrozenModel:
    """A model with its current weights as constants.

    One function holds them and is called wherever they are read, so that a graph or an export stores them once. Values
    that depend only on them, such as a normalised kernel, are computed when the graph is optimised, not in every call;
    and no function has hundreds of arguments.

    Attributes:
        unfrozen: the model.
        image_shape: the model's, if it has one.
    """

    def __init__(self, model: Any):
        self.unfrozen = model
        self.image_shape = getattr(model, "image_shape", None)
        self._variables = list(model.variables)
        self._values = values = [variable.numpy() for variable in self._variables]
        self._weights = tf.function(
            lambda: [tf.constant(value) for value in values], input_signature=[], autograph=False
        )

    def with_weights(self) -> keras.StatelessScope:
        """A scope in which the model's variables are the constants."""
        return keras.StatelessScope(
            state_mapping=list(zip(self._variables, self._weights(), strict=True))
        )

    @property
    def is_current(self) -> bool:
        """False once the model has been trained further."""
        return all(
            np.array_equal(variable.numpy(), value)
            for variable, value in zip(self._variables, self._values, strict=True)
        )


class FrozenLikelihood(FrozenModel):
    """A frozen likelihood model."""

    def log_prob(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Log-likelihoods in nats, `[n]`."""
        with self.with_weights():
            return self.unfrozen.log_prob(images, training=training)


class FrozenNetwork(FrozenModel):
    """A frozen network."""

    def features(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Features, `[n, f]`."""
        with self.with_weights():
            return self.unfrozen.features(images, training=training)


# Weak on both sides: a frozen model holds its model.
_frozen: weakref.WeakKeyDictionary[Any, "weakref.ref[FrozenModel]"] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def freeze(model: Any) -> Any:
    """A frozen model; the same one as long as it is referenced and the weights do not change.

    Models without likelihoods and features, models that are not Keras', and those too large for constants are returned
    as they are.
    """
    if not isinstance(model, keras.Model):
        return model
    kind: type[FrozenModel]
    if isinstance(model, Likelihood):
        kind = FrozenLikelihood
    elif isinstance(model, FeatureExtractor):
        kind = FrozenNetwork
    else:
        return model
    if sum(np.prod(variable.shape) * 4 for variable in model.variables) > _MOST_BYTES:
        return model
    with _lock:
        known = _frozen[model]() if model in _frozen else None
        if known is None or not known.is_current:
            known = kind(model)
            _frozen[model] = weakref.ref(known)
        return known
