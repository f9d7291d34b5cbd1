"""What one evaluation-mode pass computes for a batch of images."""

import dataclasses
from typing import Any, Literal

import tensorflow as tf

from tfbnood.protocols import Likelihood
from tfbnood.scoring.frozen import frozen_features, frozen_log_prob
from tfbnood.scoring.moments import image_maps, image_moments

__all__ = ["NEEDS", "Evidence", "Need", "gather", "widest"]

Need = Literal["pixels", "log_prob", "features", "moments", "maps"]
# Each includes those before it, as far as the model has them: log p of a likelihood model, features of a network.
NEEDS: tuple[Need, ...] = ("pixels", "log_prob", "features", "moments", "maps")


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A batch of images and the model's results for each.

    Attributes:
        images: float32 `[n, height, width, channels]` in 0–255.
        log_prob: nats `[n]`; None for a network, or if not requested.
        features: `[n, f]` of a network; None for a likelihood model, or if not requested.
        moments: each image's own moments by grid, as of `tfbnood.scoring.moments.image_moments`, or None.
        maps: inputs of the batch normalisations, as of `tfbnood.scoring.moments.image_maps`, or None.
    """

    images: tf.Tensor
    log_prob: Any = None
    features: Any = None
    moments: Any = None
    maps: Any = None


def gather(model: Any, need: Need, images: tf.Tensor) -> Evidence:
    """The evidence of uint8 images, in at most one pass of the model; called while a function is traced."""
    images = tf.convert_to_tensor(images)
    pixels = tf.cast(images, tf.float32)
    if need == "pixels":
        return Evidence(pixels)
    is_likelihood = isinstance(model, Likelihood)
    moments = maps = None
    if need == "maps":
        outputs, moments, maps = image_maps(model)(images)
    elif need == "moments":
        outputs, moments = image_moments(model)(images)
    elif is_likelihood:
        outputs = frozen_log_prob(model)(images, False)
    else:
        outputs = frozen_features(model)(images)
    if is_likelihood:
        return Evidence(pixels, log_prob=outputs, moments=moments, maps=maps)
    return Evidence(pixels, features=outputs, moments=moments, maps=maps)


def widest(*needs: Need) -> Need:
    """The need that covers all of these."""
    return max(needs, key=NEEDS.index)
