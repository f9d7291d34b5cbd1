"""What anybody can do in three lines on raw pixels: a detector that does not beat these is not worth serving."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood.evidence import Evidence, EvidenceStatistic
from tfbnood.statistics import register, sample_of

__all__ = ["PixelKnn", "PixelPca"]


@register
class PixelPca(EvidenceStatistic):
    """Squared distance of the pixels from the reference images' principal subspace.

    Args:
        components: dimensions of the subspace, at most, and never more than half of the pixels: outside all of them
            there is only rounding. Defaults to 60.
        reference_images: images to fit it to, at most. Defaults to 10,000.
        seed: of scikit-learn's randomised solver.
    """

    name = "pixel_pca"
    need = "pixels"
    needs_model = False

    def __init__(self, *, components: int = 60, reference_images: int = 10_000, seed: int = 0):
        self.components = components
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        from sklearn.decomposition import PCA

        pixels = _flat(sample_of(reference, self.reference_images)).numpy()
        components = max(1, min(self.components, min(pixels.shape) // 2))
        pca = PCA(components, random_state=self.seed).fit(pixels)
        self.mean_ = pca.mean_
        self.components_ = pca.components_
        self._restore(model)

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        centred = _flat(evidence.images) - self.mean_
        inside = tf.matmul(centred, self.components_, transpose_b=True)
        return tf.reduce_sum(tf.square(centred - tf.matmul(inside, self.components_)), axis=1)


@register
class PixelKnn(EvidenceStatistic):
    """Mean distance of the pixels to the nearest reference images.

    Args:
        neighbours: how many. Defaults to 5.
        reference_images: images to search, at most. Defaults to 10,000; all are saved with a detector.
    """

    name = "pixel_knn"
    need = "pixels"
    needs_model = False

    def __init__(self, *, neighbours: int = 5, reference_images: int = 10_000):
        self.neighbours = neighbours
        self.minimum_reference = neighbours
        self.reference_images = reference_images

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self.reference_ = sample_of(reference, self.reference_images)
        self._restore(model)

    def _restore(self, model: Any) -> None:
        super()._restore(model)
        self._known = tf.Variable(self.reference_, trainable=False)

    @property
    def variables(self) -> list[tf.Variable]:
        return [self._known]

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        # One matrix product: trees are slower in hundreds of dimensions.
        pixels, known = _flat(evidence.images), _flat(self._known)
        squared = (
            tf.reduce_sum(tf.square(pixels), axis=1)[:, None]
            + tf.reduce_sum(tf.square(known), axis=1)
            - 2 * tf.matmul(pixels, known, transpose_b=True)
        )
        nearest = -tf.math.top_k(-squared, self.neighbours).values
        return tf.reduce_mean(tf.sqrt(tf.maximum(nearest, 0)), axis=1)


def _flat(images: Any) -> tf.Tensor:
    values = tf.cast(images, tf.float32) / 255
    return tf.reshape(values, (tf.shape(values)[0], -1))
