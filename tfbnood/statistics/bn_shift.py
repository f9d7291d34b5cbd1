"""The paper's group test without a likelihood: have the moments of a whole batch shifted?"""

from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.progress import bar
from tfbnood._core.sampling import sample_of
from tfbnood.scoring.compiled import CHUNK, compile_rows
from tfbnood.scoring.evidence import gather
from tfbnood.statistics.bn_moments import BnMoments
from tfbnood.statistics.bn_norm import MomentStatistic

__all__ = ["BnShift"]

_GROUPS = 999  # random groups of calibration images of each size: no p-value lies below 1/1,000
_MOST_CALIBRATION = 2000  # images whose moments are in memory at once


class BnShift(MomentStatistic):
    """How far the moments of a batch have shifted: `‖mean of the images' residuals‖²`, over all layers.

    The paper's Δ measures the effect of a batch's own moments on the likelihoods. This statistic measures their
    distance from those of reference images, and thus needs no likelihood: any network with batch normalisation will
    do. Residuals are those of `bn_moments`: the part of an image's moments outside the principal subspace of the
    reference images, in which in-distribution images differ most.

    Scope "batch": the images of a request form one group and share its value. A batch of only one class has shifted,
    too.

    Args:
        components: maximum dimensions of the subspace. Defaults to 50.
        reference_images: maximum number of images to fit it to. Defaults to 4,000.
        seed: of the choice of images, of scikit-learn's solver and of the random groups of a calibration.

    Example:
        >>> statistic = tfbnood.statistics.get("bn_shift").fit(model, x.train)
        >>> inliers, outliers = statistic.score(x.test[:32]), statistic.score(255 - x.test[:32])
        >>> bool(inliers[0] < outliers[0]), len(set(inliers))
        (True, 1)
    """

    name = "bn_shift"
    scope = "batch"

    def __init__(self, *, components: int = 50, reference_images: int = 4000, seed: int = 0):
        self._moments = BnMoments(
            components=components, reference_images=reference_images, seed=seed
        )
        self.components = components
        self.reference_images = reference_images
        self.seed = seed

    @classmethod
    def of(cls, fitted: BnMoments) -> "BnShift":
        """The test in the subspace of an already fitted `bn_moments`."""
        shift = cls(
            components=fitted.components,
            reference_images=fitted.reference_images,
            seed=fitted.seed,
        )
        shift.image_shape_ = fitted.image_shape_
        shift._take(fitted)
        return shift

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._moments.fit(model, reference)
        self._take(self._moments)

    def _take(self, fitted: BnMoments) -> None:
        self._moments = fitted
        for name in self._fitted_names():
            setattr(self, name, getattr(fitted, name))
        self._compile()

    def _fitted_names(self) -> tuple[str, ...]:
        return BnMoments.large

    def _restore(self, model: Any) -> None:
        state = {key: getattr(self, key) for key in self._fitted_names()}
        self._moments.set_state(model, {**state, "image_shape_": np.asarray(self.image_shape_)})
        self._compile()

    def _compile(self) -> None:
        self._moments.prepare()
        images = tf.TensorSpec((None, *self.image_shape_), tf.uint8)
        # Sums, not rows: a row has tens of thousands of values.
        self._sum = tf.function(
            lambda batch: tf.reduce_sum(self._residuals(batch), axis=0),
            input_signature=[images],
            autograph=False,
        )

    def _residuals(self, images: tf.Tensor) -> tf.Tensor:
        return self._moments.tensor_residuals(gather(self._moments._model, "moments", images))

    def _score(self, images: np.ndarray) -> np.ndarray:
        starts = bar(range(0, len(images), CHUNK), self.name)
        total = sum(self._sum(images[start : start + CHUNK]).numpy() for start in starts)
        mean = np.asarray(total, np.float64) / len(images)
        return np.full(len(images), np.square(mean).sum())

    def contributions(self, images: np.ndarray) -> np.ndarray:
        """Each image's contribution to the value of the batch, `[n]`: its residual along their mean, over n. They sum
        to it.

        Example:
            >>> statistic = tfbnood.statistics.get("bn_shift").fit(model, x.train)
            >>> bool(np.isclose(statistic.contributions(x.test[:9]).sum(), statistic.score(x.test[:9])[0]))
            True
        """
        rows = self.residuals(images).astype(np.float64)
        return rows @ rows.mean(axis=0) / len(rows)

    def tensor_score(self, images: tf.Tensor) -> tf.Tensor:
        """The same inside a graph, float64 `[n]`."""
        count = tf.shape(images)[0]
        mean = tf.cast(self._sum(images), tf.float64) / tf.cast(tf.maximum(count, 1), tf.float64)
        return tf.fill([count], tf.reduce_sum(tf.square(mean)))

    @property
    def variables(self) -> list[tf.Variable]:
        """What a graph with `tensor_score` reads besides the model."""
        return self._moments.variables

    def residuals(self, images: np.ndarray) -> np.ndarray:
        """The part of each image's moments outside the subspace, float32 `[n, f]`; f is tens of thousands."""
        return compile_rows(self._residuals, self.image_shape_)(images, f"{self.name} of images")

    def group_null(self, images: np.ndarray, sizes: tuple[int, ...]) -> dict[int, np.ndarray]:
        """Sorted values of 999 random groups of calibration images for every size.

        Groups of a finite set vary less than fresh ones, by a factor of `(n − m)/(n − 1)` in variance; their deviations
        from the mean of the set are stretched to compensate. One pass over the images, whatever the number of groups: a
        group's value is `wᵀ G w` with the Gram matrix G of the images' residuals.
        """
        some = sample_of(images, _MOST_CALIBRATION, self.seed)
        rows = self.residuals(some)
        gram = (rows @ rows.T).astype(np.float64)
        count = len(some)
        random = np.random.RandomState(self.seed)
        null = {}
        for size in sizes:
            stretch = np.sqrt((count - 1) / (count - size))
            weights = np.full((_GROUPS, count), (1 - stretch) / count)
            for group in weights:
                group[random.permutation(count)[:size]] += stretch / size
            null[size] = np.sort(np.einsum("gi,ij,gj->g", weights, gram, weights, optimize=True))
        return null
