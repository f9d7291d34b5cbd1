"""Each image's own batch-norm moments against those of reference images."""

from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfbnood._core.sampling import sample_of
from tfbnood.errors import StatisticError
from tfbnood.scoring.compiled import compile_rows
from tfbnood.scoring.evidence import Evidence, gather
from tfbnood.scoring.moments import GRIDS
from tfbnood.statistics.base import EvidenceStatistic
from tfbnood.statistics.bn_norm import BatchNormStatistic

__all__ = ["BnMoments"]


class BnMoments(BatchNormStatistic, EvidenceStatistic):
    """How far an image's own batch-norm moments lie from the subspace that those of reference images fill.

    One evaluation-mode pass; in every channel of every batch normalisation the image's own mean and variance, in units
    of the moving ones. Score: squared distance, in standard deviations of the reference images, from their first
    principal components. Every image is scored alone, so that companions do not matter.

    All layers, standardised values, the residual and the number of components were chosen on pseudo-outliers made of
    Fashion-MNIST (tools/research).

    Args:
        grid: 1 (default) takes moments over the whole image; 2 over each quarter, which also tells where things are.
        components: of the subspace, at most. Defaults to 50; more are not better, and a detector carries them along.
        reference_images: images to fit it to, at most. Defaults to 4,000.
        seed: of scikit-learn's randomised solver and of the choice of images.

    Example:
        >>> statistic = tfbnood.statistics.get("bn_moments", components=5).fit(model, x.train)
        >>> inliers, outliers = statistic.score(x.test[:64]), statistic.score(255 - x.test[:64])
        >>> bool(inliers.mean() < outliers.mean())
        True
    """

    name = "bn_moments"
    need = "moments"
    one_sided = 1.0
    large = ("mean_", "scale_", "components_")

    def __init__(
        self,
        *,
        grid: Literal[1, 2] = 1,
        components: int = 50,
        reference_images: int = 4000,
        seed: int = 0,
    ):
        if grid not in GRIDS:
            raise StatisticError(f"grid must be one of {GRIDS}. Received: grid={grid!r}")
        if components < 1:
            raise StatisticError(
                f"components must be at least 1. Received: components={components}"
            )
        self.grid = grid
        self.components = components
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        from sklearn.decomposition import PCA

        self._restore(model)
        moments_of = compile_rows(
            lambda images: self._moments(gather(self._model, "moments", images)), self.image_shape_
        )
        some = sample_of(reference, self.reference_images, self.seed)
        moments = moments_of(some, f"{self.name} of reference images")
        self.mean_ = moments.mean(axis=0)
        # A channel that is the same in all reference images must not divide by nothing.
        self.scale_ = np.maximum(moments.std(axis=0), 1e-3)
        standard = (moments - self.mean_) / self.scale_
        components = min(self.components, min(standard.shape) - 1)
        pca = PCA(components, random_state=self.seed, svd_solver="randomized").fit(standard)
        # Half precision: what it rounds off is small beside a residual of thousands of values.
        self.components_ = pca.components_.astype(np.float16)

    def _fitted_names(self) -> tuple[str, ...]:
        return ("mean_", "scale_", "components_")

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        # Clipped: one wild channel must not drown the others' digits in float32.
        standard = (self._moments(evidence) - self._large("mean_")) / self._large("scale_")
        standard = tf.clip_by_value(standard, -30.0, 30.0)
        axes = self._large("components_")
        outside = standard - tf.matmul(tf.matmul(standard, axes, transpose_b=True), axes)
        return tf.reduce_sum(tf.square(outside), axis=1)

    def _moments(self, evidence: Evidence) -> tf.Tensor:
        return evidence.moments[GRIDS.index(self.grid)]
