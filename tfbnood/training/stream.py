"""The order of training images: a function of the seed and the step."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["batches", "mutated"]


def batches(
    images: np.ndarray, batch_size: int, seed: int, *, first_step: int = 0, mutation: float = 0.0
) -> Iterator[np.ndarray]:
    """Yields shuffled batches forever, starting at `first_step`; a step's batch depends only on the seed.

    Example:
        >>> stream = batches(x.train, 64, seed=0)
        >>> first, second = next(stream), next(stream)
        >>> bool((second == next(batches(x.train, 64, seed=0, first_step=1))).all())
        True
    """
    batch_size = min(batch_size, len(images))
    per_epoch = len(images) // batch_size
    step = first_step
    while True:
        epoch = step // per_epoch
        order = np.random.RandomState([seed, epoch]).permutation(len(images))
        while step // per_epoch == epoch:
            start = step % per_epoch * batch_size
            batch = images[order[start : start + batch_size]]
            yield mutated(batch, mutation, seed=[seed, step, 1]) if mutation else batch
            step += 1


def mutated(images: np.ndarray, rate: float, *, seed: Any) -> np.ndarray:
    """Replaces a share of the values by random ones, uniform in 0–255.

    Example:
        >>> images = mutated(np.zeros((100, 8, 8, 1), np.uint8), 0.3, seed=0)
        >>> round(float((images > 0).mean()), 1)
        0.3
    """
    random = np.random.RandomState(seed)
    noise = random.randint(0, 256, images.shape, np.uint8)
    return np.where(random.random_sample(images.shape) < rate, noise, images)


def as_tf_data(images: np.ndarray, run: dict[str, Any], first_step: int) -> tf.data.Dataset:
    size = min(run["batch_size"], len(images))
    return tf.data.Dataset.from_generator(
        lambda: batches(images, size, run["seed"], first_step=first_step, mutation=run["mutation"]),
        # The full shape, for which XLA compiles.
        output_signature=tf.TensorSpec((size, *images.shape[1:]), tf.uint8),
    )
