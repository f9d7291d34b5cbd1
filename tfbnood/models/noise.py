"""The random numbers of a forward pass.

Every draw is stateless: a function of a seed and a purpose only. So the same seed gives the same likelihoods, and a
training run that is stopped and resumed sees the same noise as one that was not.
"""

import dataclasses

import tensorflow as tf

from tfbnood.models.replicas import fold_in_replica

__all__ = ["Noise", "scoring_noise", "training_noise"]


@dataclasses.dataclass(frozen=True)
class Noise:
    """The randomness of one pass.

    Attributes:
        seed: int32 tensor of shape [2].
        fresh: True in a step of `fit`: every row has its own draw and dropout is on. False when scoring: all rows share
            one draw, so that a row's value depends neither on its position in the batch nor on padding, and dropout is
            off.
    """

    seed: tf.Tensor
    fresh: bool

    def fold(self, purpose: int) -> "Noise":
        """Returns independent noise for another use within the same pass."""
        seed = tf.random.experimental.stateless_fold_in(self.seed, purpose)
        return dataclasses.replace(self, seed=seed)

    def uniform(self, rows: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
        """Draws from U[0, 1), shape `[rows, *shape]` in training and `[1, *shape]` in scoring."""
        return tf.random.stateless_uniform(self._full_shape(rows, shape), self.seed)

    def normal(self, rows: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
        """Draws from N(0, 1), shape `[rows, *shape]` in training and `[1, *shape]` in scoring."""
        return tf.random.stateless_normal(self._full_shape(rows, shape), self.seed)

    def _full_shape(self, rows: tf.Tensor, shape: tuple[int, ...]) -> tuple:
        return (rows if self.fresh else 1, *shape)


def scoring_noise(seed: int | tf.Tensor) -> Noise:
    """Noise for scoring: shared by all rows, the same for the same seed."""
    return Noise(seed=tf.stack([tf.cast(seed, tf.int32), 0]), fresh=False)


def training_noise(seed: int, step: tf.Tensor) -> Noise:
    """Noise for one step of `fit`: a function of the model's seed, the optimiser's step and the replica."""
    # The second word distinguishes a training step from any scoring seed.
    words = tf.stack([seed, 1 + tf.cast(step, tf.int32)])
    return Noise(seed=fold_in_replica(words), fresh=True)
