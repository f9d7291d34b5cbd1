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
from tfbnood.statistics.bn_norm import MomentStatistic
from tfbnood.statistics.subspace import coordinates, fit_subspace, residuals

__all__ = ["BnMoments"]


class BnMoments(MomentStatistic, EvidenceStatistic):
    """The distance of an image's own batch-norm moments from the subspace of those of reference images.

    One evaluation-mode pass; in every channel of every batch normalisation the image's own mean and variance, in units
    of the moving ones. Score: squared distance, in standard deviations of the reference images, from their first
    principal components. Every image is scored alone, so that companions do not matter.

    All layers, standardised values, the residual and the number of components were chosen on pseudo-outliers made from
    Fashion-MNIST (tools/research).

    Args:
        grid: 1 (default) takes moments over the whole image; 2 over each quarter, which also captures positions.
        components: maximum dimensions of the subspace, and never more than a quarter of the images. Defaults to 50;
            more are not better, and make a detector larger.
        reference_images: maximum number of images to fit it to. Defaults to 4,000.
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
    large = ("mean_", "scale_", "components_", "components_factor_")

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
        self._restore(model)
        moments_of = compile_rows(
            lambda images: self._moments(gather(self._model, "moments", images)), self.image_shape_
        )
        some = sample_of(reference, self.reference_images, self.seed)
        moments = moments_of(some, f"{self.name} of reference images")
        self.mean_, self.scale_, components = fit_subspace(moments, self.components, self.seed)
        # Bytes: their rounding errors are small compared with a residual of thousands of values.
        self._keep_bytes("components_", components, axis=1)

    def _fitted_names(self) -> tuple[str, ...]:
        return self.large

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        return tf.reduce_sum(tf.square(self.tensor_residuals(evidence)), axis=1)

    def tensor_residuals(self, evidence: Evidence) -> tf.Tensor:
        """The part of each image's moments outside the subspace, in standard deviations, `[n, f]`."""
        return residuals(self._moments(evidence), *self._subspace())

    def tensor_coordinates(self, evidence: Evidence) -> tf.Tensor:
        """The coordinates of each image's moments in the subspace, in standard deviations, `[n, components]`."""
        return coordinates(self._moments(evidence), *self._subspace())

    def _subspace(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return self._large("mean_"), self._large("scale_"), self._large("components_")

    def _moments(self, evidence: Evidence) -> tf.Tensor:
        return evidence.moments[GRIDS.index(self.grid)]
