"""Statistics of one model's log-likelihood in evaluation mode: the paper's baselines and their successors."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.sampling import sample_of
from tfbnood.scoring.compiled import compile_log_prob
from tfbnood.scoring.evidence import Evidence
from tfbnood.statistics.base import EvidenceStatistic

__all__ = ["Complexity", "LogProb", "TPerm", "png_bits"]


class LogProb(EvidenceStatistic):
    """−log p(x): an image is out-of-distribution if it is unlikely.

    Example:
        >>> statistic = tfbnood.statistics.get("log_prob").fit(model, x.train)
        >>> bits = statistic.score(x.test) / (64 * np.log(2))
        >>> np.allclose(bits, model.bits_per_dim(x.test), rtol=1e-4)
        True
    """

    name = "log_prob"
    need = "log_prob"

    def _fitted_names(self) -> tuple[str, ...]:
        return ()

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        return -evidence.log_prob


class TPerm(EvidenceStatistic):
    """T_perm = |#{i: log p(xᵢ) ≤ log p(x)} − N/2| over N reference images: too unlikely or too likely.

    Args:
        reference_images: maximum of N. Defaults to 2,048.

    Example:
        >>> statistic = tfbnood.statistics.get("t_perm").fit(model, x.train)
        >>> bool(statistic.score(x.test).max() <= len(x.train) / 2)
        True

    Reference: PixelDefend (Song et al. 2017), arXiv:1710.10766.
    """

    name = "t_perm"
    need = "log_prob"

    def __init__(self, *, reference_images: int = 2048):
        self.reference_images = reference_images

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)
        self._restore(model)
        log_prob = compile_log_prob(self._model, self.image_shape_)
        log_probs = log_prob(sample_of(reference, self.reference_images), "log p")
        self.sorted_ = np.sort(log_probs)

    def _fitted_names(self) -> tuple[str, ...]:
        return ("sorted_",)

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        known = tf.cast(self.sorted_, tf.float32)  # as all of them were
        below = tf.searchsorted(known, evidence.log_prob, side="right")
        return tf.abs(tf.cast(below, tf.float32) - len(self.sorted_) / 2)


class Complexity(EvidenceStatistic):
    """Bits of the image under the model minus bits of its PNG: unlikely, given how simple it is.

    Example:
        >>> statistic = tfbnood.statistics.get("complexity").fit(model, x.train)
        >>> statistic.score(x.test[:5]).shape
        (5,)

    Reference: Input complexity and out-of-distribution detection (Serrà et al. 2020), arXiv:1909.11480.
    """

    name = "complexity"
    need = "log_prob"

    def _fitted_names(self) -> tuple[str, ...]:
        return ()

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        return -evidence.log_prob / math.log(2) - png_bits(evidence.images)


def png_bits(images: tf.Tensor) -> tf.Tensor:
    """Size of every image as a PNG file at the highest compression, in bits, float32 `[n]`."""

    def bits(image):
        return 8 * tf.strings.length(tf.io.encode_png(image, compression=9))

    sizes = tf.map_fn(bits, tf.cast(images, tf.uint8), fn_output_signature=tf.int32)
    return tf.cast(sizes, tf.float32)
