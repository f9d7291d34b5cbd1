"""What anybody can do in three lines on raw pixels: a detector that does not beat these is not worth serving."""

from typing import Any

import numpy as np

from tfbnood.statistics import Statistic, register, sample_of

__all__ = ["PixelKnn", "PixelPca"]


@register
class PixelPca(Statistic):
    """Squared distance of the pixels from the reference images' principal subspace.

    Args:
        components: dimensions of the subspace, at most. Defaults to 60.
        reference_images: images to fit it to, at most. Defaults to 10,000.
        seed: of scikit-learn's randomised solver.
    """

    name = "pixel_pca"
    scope = "image"
    needs_model = False

    def __init__(self, *, components: int = 60, reference_images: int = 10_000, seed: int = 0):
        self.components = components
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        from sklearn.decomposition import PCA

        pixels = _flat(sample_of(reference, self.reference_images))
        components = min(self.components, min(pixels.shape) - 1)
        pca = PCA(components, random_state=self.seed).fit(pixels)
        self.mean_ = pca.mean_
        self.components_ = pca.components_

    def _score(self, images: np.ndarray) -> np.ndarray:
        centred = _flat(images) - self.mean_
        residual = centred - centred @ self.components_.T @ self.components_
        return np.square(residual).sum(axis=1)


@register
class PixelKnn(Statistic):
    """Mean distance of the pixels to the nearest reference images.

    Args:
        neighbours: how many. Defaults to 5.
        reference_images: images to search, at most. Defaults to 10,000; all are saved with a detector.
    """

    name = "pixel_knn"
    scope = "image"
    needs_model = False

    def __init__(self, *, neighbours: int = 5, reference_images: int = 10_000):
        self.neighbours = neighbours
        self.minimum_reference = neighbours
        self.reference_images = reference_images

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self.reference_ = sample_of(reference, self.reference_images)
        self._restore(model)

    def _restore(self, model: Any) -> None:
        from sklearn.neighbors import NearestNeighbors

        # Brute force: trees are slower than one matrix product in hundreds of dimensions.
        self._search = NearestNeighbors(n_neighbors=self.neighbours, algorithm="brute")
        self._search.fit(_flat(self.reference_))

    def _score(self, images: np.ndarray) -> np.ndarray:
        distances, _ = self._search.kneighbors(_flat(images))
        return distances.mean(axis=1)


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1).astype(np.float32) / 255
