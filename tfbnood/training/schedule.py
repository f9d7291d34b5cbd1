"""The decay of the learning rate."""

from typing import Any

import keras
import tensorflow as tf

__all__ = ["ConstantThenDecay"]


@keras.saving.register_keras_serializable(package="tfbnood")
class ConstantThenDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that is constant for two thirds of the steps, then falls linearly to a hundredth.

    The decay lets the weights settle, and with them the moving moments, which lag behind changing weights: evaluation
    and training mode then agree on in-distribution images.

    Args:
        peak: the constant rate.
        steps: of the whole training.

    Example:
        >>> rate = ConstantThenDecay(1e-3, steps=300)
        >>> [round(float(rate(step)), 6) for step in (0, 200, 250, 300)]
        [0.001, 0.001, 0.0005, 1e-05]
    """

    def __init__(self, peak: float, steps: int):
        self.peak = peak
        self.steps = steps

    def __call__(self, step):
        done = tf.cast(step, tf.float32) / self.steps
        return self.peak * tf.clip_by_value(3.0 * (1.0 - done), 0.01, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "steps": self.steps}
