"""Nearest neighbours among the features of reference images."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.sampling import sample_of
from tfbnood.errors import StatisticError
from tfbnood.protocols import FeatureExtractor
from tfbnood.scoring.compiled import compile_rows
from tfbnood.scoring.evidence import Evidence, gather
from tfbnood.statistics.base import EvidenceStatistic

__all__ = ["Features"]


class Features(EvidenceStatistic):
    """How far an image's features are from the nearest of the reference images', by angle.

    Score: `1 − mean cos(f, f_i)` over the k nearest reference images. `f` are the features of a network, for example
    the inputs of a classifier's last layer; `tfbnood.networks.Network` documents them and accepts other layers.

    A detector stores the features of all reference images in half precision: 2 bytes × features × images, 5 MB for
    2,000 images and 1,280 features. One matrix product compares them all, in a hundredth of the network's own time: an
    approximate search would save nothing.

    Args:
        neighbours: number of neighbours. Defaults to 5.
        reference_images: maximum number of images to search. Defaults to 4,000.
        seed: of the choice of images.

    Example:
        >>> network = tfbnood.networks.load("MobileNetV3Small", size=32, weights=None)
        >>> statistic = tfbnood.statistics.get("features").fit(network, x.train[:50])
        >>> statistic.score(x.test[:5]).shape
        (5,)

    Reference: Out-of-distribution detection with deep nearest neighbors (Sun et al. 2022), arXiv:2204.06507.
    """

    name = "features"
    need = "features"
    one_sided = 1.0
    large = ("known_",)
    takes = (FeatureExtractor,)

    def __init__(self, *, neighbours: int = 5, reference_images: int = 4000, seed: int = 0):
        if neighbours < 1:
            raise StatisticError(
                f"neighbours must be at least 1. Received: neighbours={neighbours}"
            )
        self.neighbours = neighbours
        self.minimum_reference = neighbours
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)
        directions_of = compile_rows(
            lambda images: _normalise(gather(self._model, "features", images)), self.image_shape_
        )
        some = sample_of(reference, self.reference_images, self.seed)
        self.known_ = directions_of(some, f"{self.name} of reference images").astype(np.float16)

    def _fitted_names(self) -> tuple[str, ...]:
        return self.large

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        similar = tf.matmul(_normalise(evidence), self._large("known_"), transpose_b=True)
        return 1 - tf.reduce_mean(tf.math.top_k(similar, self.neighbours).values, axis=1)


def _normalise(evidence: Evidence) -> tf.Tensor:
    """Features scaled to unit length; zero features stay zero."""
    return tf.math.l2_normalize(evidence.features, axis=1)
