"""What one evaluation-mode pass tells of a batch of images."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf

from tfbnood.scoring.conditional import frozen_log_prob
from tfbnood.scoring.moments import image_moments

__all__ = ["NEEDS", "Evidence", "Need", "gatherer"]

Need = Literal["pixels", "log_prob", "moments"]


# Each has what those before it have.
NEEDS: tuple[Need, ...] = ("pixels", "log_prob", "moments")


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A batch of images and what the model makes of each.

    Attributes:
        images: float32 `[n, height, width, channels]` in 0–255.
        log_prob: nats `[n]`, or None where nobody asked for them.
        moments: each image's own moments by grid, as of `tfbnood.moments.image_moments`, or None.
    """

    images: tf.Tensor
    log_prob: Any = None
    moments: Any = None


def gatherer(model: Any, need: Need) -> Callable[[Any], Evidence]:
    """Returns a function from a batch of images to its evidence, in one pass at most."""
    log_prob = frozen_log_prob(model) if need == "log_prob" else None
    moments = image_moments(model) if need == "moments" else None

    def gather(images: Any) -> Evidence:
        images = tf.convert_to_tensor(images)
        pixels = tf.cast(images, tf.float32)
        if moments is not None:
            return Evidence(pixels, *moments(images))
        if log_prob is not None:
            return Evidence(pixels, log_prob(images, False))
        return Evidence(pixels)

    return gather
