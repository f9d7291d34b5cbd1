"""The paper's Δ."""

from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfbnood._core.sampling import sample_of
from tfbnood.errors import StatisticError
from tfbnood.scoring.conditional import ConditionalLogProb, MixedMomentsLogProb
from tfbnood.statistics.bn_norm import BatchNormStatistic, bn_delta, check_ratios

__all__ = ["BnDelta"]


class BnDelta(BatchNormStatistic):
    """The paper's Δ: how much an image's likelihood changes as its batch fills up with its own kind.

    Scope "batch": the images of a request are each other's companions, so that Δ detects outliers that come together.
    In a stream with few outliers it does not: the companions of all images are then mostly in-distribution.

    Args:
        r1: the lower share of test images in a batch. Defaults to 0.1; 0 is evaluation mode.
        r2: the higher share. Defaults to 0.9; 1 is training mode.
        batch_size: b. Defaults to 64.
        mixing: "samples" (default), the paper's way, completes batches with reference images: 1/r passes per image and
            draw, and the reference images are part of the detector. "moments" mixes the moments of batches of test
            images with the moving ones: one pass per image and draw, and no reference images.
        draws: random batches over which an image is averaged, at r1 and at r2. Defaults to (2, 8) with mixed samples,
            where a draw at r2 takes a ninth of the passes (chosen on pseudo-outliers in tools/research), and to (1, 1)
            with mixed moments.
        reference_images: number of reference images kept to complete batches. Defaults to 1,024.
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
        check_ratios(r1, r2)
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

    def _fitted_names(self) -> tuple[str, ...]:
        return ("reference_",) if self.mixing == "samples" else ()

    def _restore(self, model: Any) -> None:
        self._conditional: ConditionalLogProb | MixedMomentsLogProb = (
            ConditionalLogProb(model, self.reference_, batch_size=self.batch_size)
            if self.mixing == "samples"
            else MixedMomentsLogProb(model, batch_size=self.batch_size)
        )

    def _score(self, images: np.ndarray) -> np.ndarray:
        low, high = (
            self._conditional(images, ratio=ratio, draws=draws, seed=self.seed)
            for ratio, draws in zip((self.r1, self.r2), self.draws, strict=True)
        )
        return bn_delta(low, high)

    def tensor_score(self, images: tf.Tensor) -> tf.Tensor:
        """Δ inside a graph, float64 `[n]`: the same batches and the same numbers as `score`."""
        low, high = (
            self._conditional.tensor(images, ratio, draws, self.seed)
            for ratio, draws in zip((self.r1, self.r2), self.draws, strict=True)
        )
        return tf.abs(low - high)

    @property
    def variables(self) -> list[tf.Variable]:
        """What a graph with `tensor_score` reads besides the model."""
        mixing = self._conditional
        return [mixing.bank] if isinstance(mixing, ConditionalLogProb) else []
