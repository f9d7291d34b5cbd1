"""What one evaluation-mode pass tells of a batch of images."""

import dataclasses
from typing import Any, Literal

import tensorflow as tf

from tfbnood.scoring.frozen import frozen_log_prob
from tfbnood.scoring.moments import image_moments

__all__ = ["NEEDS", "Evidence", "Need", "gather", "widest"]

Need = Literal["pixels", "log_prob", "moments"]
# Each has what those before it have.
NEEDS: tuple[Need, ...] = ("pixels", "log_prob", "moments")


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A batch of images and what the model makes of each.

    Attributes:
        images: float32 `[n, height, width, channels]` in 0–255.
        log_prob: nats `[n]`, or None where nobody asked for them.
        moments: each image's own moments by grid, as of `tfbnood.scoring.moments.image_moments`, or None.
    """

    images: tf.Tensor
    log_prob: Any = None
    moments: Any = None


def gather(model: Any, need: Need, images: tf.Tensor) -> Evidence:
    """The evidence of uint8 images, in one pass of the model at most; called while a function is traced."""
    images = tf.convert_to_tensor(images)
    pixels = tf.cast(images, tf.float32)
    if need == "moments":
        return Evidence(pixels, *image_moments(model)(images))
    if need == "log_prob":
        return Evidence(pixels, frozen_log_prob(model)(images, False))
    return Evidence(pixels)


def widest(*needs: Need) -> Need:
    """The need that covers all of these."""
    return max(needs, key=NEEDS.index)
