"""What the replicas of a `tf.distribute` strategy share in a training step; has no effect with one replica.

Each replica has its part of the images, its own noise and, by default, its own moments of the batch. They share
gradients, weights, and the moving moments, which are averaged after every step: so all replicas end a step equal, and
the state of the training is still a function of only the step.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

__all__ = [
    "average_moving_moments",
    "fold_in_replica",
    "share_of_loss",
    "sum_over_replicas",
    "synchronize_moments",
]


def share_of_loss(loss: tf.Tensor) -> tf.Tensor:
    """A replica's part of the mean over all images: optimisers sum the gradients of the replicas."""
    count = tf.distribute.get_strategy().num_replicas_in_sync
    return loss if count == 1 else loss / count


def fold_in_replica(seed: tf.Tensor) -> tf.Tensor:
    """A different seed in every replica but the first: else all would draw the same noise."""
    context = _context()
    if context is None:
        return seed
    replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
    folded = tf.random.experimental.stateless_fold_in(seed, replica)
    return tf.where(replica == 0, seed, folded)


def sum_over_replicas(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors, summed over the replicas."""
    context = _context()
    if context is None or not tensors:
        return list(tensors)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, list(tensors))


def average_moving_moments(model: keras.Model) -> None:
    """Sets the moving moments of all replicas to their mean, in layers with separate moments."""
    context = _context()
    if context is None:
        return
    moving = [
        variable
        for layer in _find_normalizations(model)
        if layer.trainable and not layer.synchronized
        for variable in (layer.moving_mean, layer.moving_variance)
    ]
    if not moving:
        return
    # All at once: one exchange, whatever the number of layers.
    means = context.all_reduce(
        tf.distribute.ReduceOp.MEAN, [tf.identity(variable) for variable in moving]
    )
    for variable, mean in zip(moving, means, strict=True):
        variable.assign(mean)


def synchronize_moments(model: keras.Model) -> None:
    """Switches to the moments of all replicas' images, instead of each replica's own."""
    for layer in _find_normalizations(model):
        layer.synchronized = True


def _context() -> Any:
    """The replica that is being traced, if there are several."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return None
    return tf.distribute.get_replica_context()


def _find_normalizations(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    layers = model._flatten_layers()
    return [one for one in layers if isinstance(one, keras.layers.BatchNormalization)]
