"""Functions of a model that are compiled once per model, and in which no variable changes."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

__all__ = ["frozen_log_prob", "once_per_model"]


def once_per_model(trace: Callable) -> Callable:
    """Makes of `trace(model, …)` a function `model → tf.function` that compiles once per model, whoever asks."""
    compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    lock = threading.Lock()

    def function_of(model: Any) -> Any:
        with lock:  # Two threads must not have one each: tracing takes seconds.
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
def frozen_log_prob(model: Any, images: tf.Tensor, training: bool) -> tf.Tensor:
    """Compiles `model.log_prob` as `(images, training) → [n]` in which no variable changes.

    Works for any model with `log_prob(images, training=…)`: updates of moving moments are caught and dropped.

    Example:
        >>> log_prob = frozen_log_prob(model)
        >>> log_prob(x.test[:64], True).shape
        TensorShape([64])
    """
    with keras.StatelessScope():
        return model.log_prob(images, training=training)
