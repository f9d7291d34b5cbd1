"""Simple statistics of raw pixels: a detector that does not beat these is not worth serving."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.sampling import sample_of
from tfbnood.scoring.evidence import Evidence
from tfbnood.statistics.base import EvidenceStatistic

__all__ = ["PixelKnn", "PixelPca"]


class PixelPca(EvidenceStatistic):
    """Squared distance of the pixels from the reference images' principal subspace.

    Args:
        components: maximum dimensions of the subspace, and never more than half of the pixels: outside all of them
            there are only rounding errors. Defaults to 60.
        reference_images: maximum number of images to fit it to. Defaults to 10,000.
        seed: of scikit-learn's randomised solver.

    Example:
        >>> digits = tfbnood.data.load("digits")
        >>> statistic = tfbnood.statistics.get("pixel_pca", components=10).fit(None, digits.train)
        >>> bool(statistic.score(255 - digits.test).min() > statistic.score(digits.test).mean())
        True
    """

    name = "pixel_pca"
    need = "pixels"
    large = ("mean_", "components_", "components_factor_")
    needs_model = False

    def __init__(self, *, components: int = 60, reference_images: int = 10_000, seed: int = 0):
        self.components = components
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        images = sample_of(reference, self.reference_images)
        self.mean_, components = _find_principal(images, self.components, self.seed)
        self._keep_bytes("components_", components, axis=1)
        self._restore(model)

    def _fitted_names(self) -> tuple[str, ...]:
        return self.large

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        mean, axes = self._large("mean_"), self._large("components_")
        return _inside_and_outside(evidence.images, mean, axes)[1]


class PixelKnn(EvidenceStatistic):
    """Mean distance of the pixels to the nearest reference images.

    Distances are those of the principal components plus the parts of both images outside of them, as if those were
    orthogonal: `‖a − b‖² ≈ ‖Pa − Pb‖² + ‖a − Pa‖² + ‖b − Pb‖²`. So a detector stores a few numbers per reference image
    instead of the image.

    Args:
        neighbours: number of neighbours. Defaults to 5.
        components: maximum number, and never more than half of the pixels. Defaults to 120: more are a little better on
            small grey images, but make a detector larger.
        reference_images: maximum number of images to search. Defaults to 10,000.
        seed: of scikit-learn's randomised solver.

    Example:
        >>> digits = tfbnood.data.load("digits")
        >>> statistic = tfbnood.statistics.get("pixel_knn").fit(None, digits.train)
        >>> bool(statistic.score(255 - digits.test).min() > statistic.score(digits.test).mean())
        True
    """

    name = "pixel_knn"
    need = "pixels"
    large = (
        "mean_",
        "components_",
        "components_factor_",
        "known_inside_",
        "known_inside_factor_",
        "known_outside_",
    )
    needs_model = False

    def __init__(
        self,
        *,
        neighbours: int = 5,
        components: int = 120,
        reference_images: int = 10_000,
        seed: int = 0,
    ):
        self.neighbours = neighbours
        self.components = components
        self.minimum_reference = neighbours
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        images = sample_of(reference, self.reference_images)
        self.mean_, components = _find_principal(images, self.components, self.seed)
        self._keep_bytes("components_", components, axis=1)
        self._restore(model)
        inside, outside = _inside_and_outside(images, self.mean_, self._large("components_"))
        # Distances of images are far larger than the rounding errors of bytes and half precision.
        self._keep_bytes("known_inside_", inside.numpy(), axis=0)
        self.known_outside_ = outside.numpy().astype(np.float16)

    def _fitted_names(self) -> tuple[str, ...]:
        return self.large

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        axes, known = self._large("components_"), self._large("known_inside_")
        inside, outside = _inside_and_outside(evidence.images, self._large("mean_"), axes)
        # One matrix product: trees are slower in dozens of dimensions.
        squared = (
            (tf.reduce_sum(tf.square(inside), axis=1) + outside)[:, None]
            + tf.reduce_sum(tf.square(known), axis=1)
            + self._large("known_outside_")
            - 2 * tf.matmul(inside, known, transpose_b=True)
        )
        nearest = -tf.math.top_k(-squared, self.neighbours).values
        return tf.reduce_mean(tf.sqrt(tf.maximum(nearest, 0)), axis=1)


def _find_principal(images: np.ndarray, most: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and principal components; outside all components there would only be rounding errors."""
    from sklearn.decomposition import PCA

    pixels = _flat(images).numpy()
    pca = PCA(max(1, min(most, min(pixels.shape) // 2)), random_state=seed).fit(pixels)
    return pca.mean_, pca.components_


def _inside_and_outside(images: Any, mean: Any, axes: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Coordinates in the subspace of the axes, `[n, k]`, and the squared distance from it, `[n]`."""
    centred = _flat(images) - mean
    inside = tf.matmul(centred, axes, transpose_b=True)
    return inside, tf.reduce_sum(tf.square(centred - tf.matmul(inside, axes)), axis=1)


def _flat(images: Any) -> tf.Tensor:
    values = tf.cast(images, tf.float32) / 255
    return tf.reshape(values, (tf.shape(values)[0], -1))
