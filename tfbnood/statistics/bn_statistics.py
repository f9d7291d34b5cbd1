"""Statistics that use batch normalisation's two kinds of moments."""

from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfbnood._core.batching import map_batches
from tfbnood.scoring.conditional import ConditionalLogProb, MixedMomentsLogProb
from tfbnood.statistics.ensemble import Ensemble
from tfbnood.errors import StatisticError
from tfbnood.scoring.evidence import Evidence, EvidenceStatistic
from tfbnood.scoring.moments import GRIDS, batch_normalizations
from tfbnood.statistics.base import Statistic, register, sample_of

__all__ = ["BnDelta", "BnDeltaGrouped", "BnMoments", "bn_delta"]


def bn_delta(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Δ_{b,r1,r2}(x) = |S_{b,r1}(x) − S_{b,r2}(x)|."""
    return np.abs(low - high)


def _check_ratios(r1: float, r2: float) -> None:
    if not 0 <= r1 < r2 <= 1:
        raise StatisticError(f"r1 and r2 must have 0 ≤ r1 < r2 ≤ 1. Received: r1={r1}, r2={r2}")


class _BatchNormStatistic(Statistic):
    """A statistic of a model's batch normalisations."""

    def _check_model(self, model: Any) -> None:
        super()._check_model(model)
        if not batch_normalizations(model):
            raise StatisticError(
                f"{self.name} compares the moments of images with the moving ones, so the model must have "
                "keras.layers.BatchNormalization layers. Received: a model with none"
            )


@register
class BnDelta(_BatchNormStatistic):
    """The paper's Δ: how much an image's likelihood moves as its batch fills with its own kind.

    Scope "batch": the images of a request are each other's companions, so that Δ tells outliers that come together.
    In a stream with few of them it does not: companions are then mostly in-distribution for all.

    Args:
        r1: the lower share of test images in a batch. Defaults to 0.1; 0 is evaluation mode.
        r2: the higher share. Defaults to 0.9; 1 is training mode.
        batch_size: b. Defaults to 64.
        mixing: "samples" (default), the paper's way, completes batches with reference images: 1/r passes an image and
            draw, and the reference images are part of the detector. "moments" mixes the moments of batches of test
            images with the moving ones: one pass an image and draw, and no reference images.
        draws: random batches an image is averaged over, at r1 and at r2. Defaults to (2, 8) with mixed samples, where
            a draw at r2 takes a ninth of the passes (chosen on pseudo-outliers by tools/choose_draws.py), and to (1, 1)
            with mixed moments.
        reference_images: how many of the reference images are kept to complete batches. Defaults to 1,024.
        seed: of the random batches.

    Example:
        >>> statistic = tfbnood.statistics.get("bn_delta", draws=(1, 2)).fit(model, x.train)
        >>> inliers, outliers = statistic.score(x.test[:64]), statistic.score(255 - x.test[:64])
        >>> bool(inliers.mean() < outliers.mean())
        True

    Reference: Unsupervised Out-of-Distribution Detection with Batch Normalization, arXiv:1910.09115.
    """

    name = "bn_delta"
    scope = "batch"

    def __init__(
        self,
        *,
        r1: float = 0.1,
        r2: float = 0.9,
        batch_size: int = 64,
        mixing: Literal["samples", "moments"] = "samples",
        draws: tuple[int, int] | None = None,
        reference_images: int = 1024,
        seed: int = 0,
    ):
        _check_ratios(r1, r2)
        if mixing not in ("samples", "moments"):
            raise StatisticError(
                f'mixing must be "samples" or "moments". Received: mixing={mixing!r}'
            )
        if draws is None:
            draws = (2, 8) if mixing == "samples" else (1, 1)
        if len(draws) != 2 or min(draws) < 1:
            raise StatisticError(
                f"draws must be two numbers of at least 1. Received: draws={draws}"
            )
        self.r1 = r1
        self.r2 = r2
        self.batch_size = batch_size
        self.mixing = mixing
        self.draws = tuple(draws)
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        if self.mixing == "samples":
            self.reference_ = sample_of(reference, self.reference_images, self.seed)
        self._restore(model)

    def _restore(self, model: Any) -> None:
        self._conditional: ConditionalLogProb | MixedMomentsLogProb = (
            ConditionalLogProb(model, self.reference_, batch_size=self.batch_size)
            if self.mixing == "samples"
            else MixedMomentsLogProb(model, batch_size=self.batch_size)
        )

    def _score(self, images: np.ndarray) -> np.ndarray:
        low, high = (
            self._conditional(
                images, ratio=ratio, draws=draws, seed=self.seed, progress=self._progress
            )
            for ratio, draws in zip((self.r1, self.r2), self.draws, strict=True)
        )
        return bn_delta(low, high)


@register
class BnDeltaGrouped(_BatchNormStatistic):
    """Δ with companions of one's own kind: images are ranked by `ensemble` first, and neighbours in rank form batches.

    In a stream with few outliers random companions are mostly in-distribution for all images, and Δ tells little.
    Ranked, the outliers come together at the top. Moments are mixed, not samples.

    Args:
        r1: the lower share of test images in a batch. Defaults to 0, evaluation mode.
        r2: the higher share. Defaults to 0.9.
        batch_size: images in a group. Defaults to 32: smaller groups are purer, larger ones less noisy.

    Example:
        >>> statistic = tfbnood.statistics.get("bn_delta_grouped").fit(model, x.train[:100])
        >>> inliers, outliers = statistic.score(x.test[:64]), statistic.score(255 - x.test[:64])
        >>> bool(inliers.mean() < outliers.mean())
        True
    """

    name = "bn_delta_grouped"
    scope = "batch"

    def __init__(self, *, r1: float = 0.0, r2: float = 0.9, batch_size: int = 32):
        _check_ratios(r1, r2)
        self.r1 = r1
        self.r2 = r2
        self.batch_size = batch_size

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._ranking = Ensemble(pretext=False)
        self._ranking.fit(model, reference, progress=self._progress)
        self._mixed = MixedMomentsLogProb(model, batch_size=self.batch_size)

    def get_state(self) -> dict[str, np.ndarray]:
        return {**self._ranking.get_state(), **super().get_state()}

    def set_state(self, model: Any, state: dict[str, np.ndarray]) -> None:
        self._ranking = Ensemble(pretext=False)
        self._ranking.set_state(model, state)
        super().set_state(model, {"image_shape_": state["image_shape_"]})

    def _restore(self, model: Any) -> None:
        self._mixed = MixedMomentsLogProb(model, batch_size=self.batch_size)

    def _score(self, images: np.ndarray) -> np.ndarray:
        ranks, log_probs = map_batches(self._alone, images, progress=self._progress).T
        order = np.argsort(-ranks)
        starts = range(0, len(images), self.batch_size)
        # The last group is completed by those ranked before it.
        groups = [
            order[max(0, min(start, len(order) - self.batch_size)) :][: self.batch_size]
            for start in starts
        ]
        low, high = (
            self._mixed.of_groups(images, groups, ratio=ratio, progress=self._progress)
            if ratio
            else log_probs
            for ratio in (self.r1, self.r2)
        )
        return bn_delta(low, high)

    def _alone(self, batch: np.ndarray) -> tf.Tensor:
        """Of every image its score by `ensemble` and log p in evaluation mode, `[n, 2]`."""
        evidence = self._ranking._gather(batch)
        return tf.stack([self._ranking.tensor_score(evidence), evidence.log_prob], axis=1)


@register
class BnMoments(_BatchNormStatistic, EvidenceStatistic):
    """How far an image's own batch-norm moments lie from the subspace that those of reference images fill.

    One evaluation-mode pass; in every channel of every batch normalisation the image's own mean and variance, in units
    of the moving ones. Score: squared distance, in standard deviations of the reference images, from their first
    principal components. Every image is scored alone, so that companions do not matter.

    All layers, standardised values, the residual and the number of components were chosen on pseudo-outliers made of
    Fashion-MNIST (docs/statistics.md).

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
        moments = map_batches(
            lambda batch: self._moments(self._gather(batch)),
            sample_of(reference, self.reference_images, self.seed),
            description=f"{self.name} of reference images",
            progress=self._progress,
        )
        self.mean_ = moments.mean(axis=0)
        # A channel that is the same in all reference images must not divide by nothing.
        self.scale_ = np.maximum(moments.std(axis=0), 1e-3)
        standard = (moments - self.mean_) / self.scale_
        components = min(self.components, min(standard.shape) - 1)
        pca = PCA(components, random_state=self.seed, svd_solver="randomized").fit(standard)
        # Half precision: what it rounds off is small beside a residual of thousands of values.
        self.components_ = pca.components_.astype(np.float16)

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        # Clipped: one wild channel must not drown the others' digits in float32.
        standard = (self._moments(evidence) - self._large("mean_")) / self._large("scale_")
        standard = tf.clip_by_value(standard, -30.0, 30.0)
        axes = self._large("components_")
        outside = standard - tf.matmul(tf.matmul(standard, axes, transpose_b=True), axes)
        return tf.reduce_sum(tf.square(outside), axis=1)

    def _moments(self, evidence: Evidence) -> tf.Tensor:
        return evidence.moments[GRIDS.index(self.grid)]
