"""Statistics made of log-likelihoods in evaluation mode: the paper's baselines and their successors."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.batching import map_batches
from tfbnood.scoring.conditional import companion_groups, frozen_log_prob
from tfbnood.errors import StatisticError
from tfbnood.scoring.evidence import Evidence, EvidenceStatistic
from tfbnood.statistics.base import Statistic, register, sample_of

__all__ = [
    "Complexity",
    "LikelihoodRatio",
    "LogProb",
    "Reconstruction",
    "TPerm",
    "Typicality",
    "Waic",
    "png_bits",
]


class _LogProb:
    """Log-likelihoods of any number of images in nats, evaluation mode."""

    def __init__(self, model: Any):
        self._frozen = frozen_log_prob(model)

    def __call__(self, images: np.ndarray, progress: bool = False) -> np.ndarray:
        return map_batches(
            lambda batch: self._frozen(batch, False),
            images,
            description="log p",
            progress=progress,
        ).astype(np.float64)


class _LikelihoodStatistic(Statistic):
    """A statistic of log p(x)."""

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)

    def _restore(self, model: Any) -> None:
        self._log_prob = _LogProb(model)


@register
class LogProb(EvidenceStatistic):
    """−log p(x): an image is out-of-distribution when it is unlikely.

    Example:
        >>> statistic = tfbnood.statistics.get("log_prob").fit(model, x.train)
        >>> bits = statistic.score(x.test) / (64 * np.log(2))
        >>> np.allclose(bits, model.bits_per_dim(x.test), rtol=1e-4)
        True
    """

    name = "log_prob"
    need = "log_prob"

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        return -evidence.log_prob


@register
class TPerm(EvidenceStatistic):
    """T_perm = |#{i: log p(xᵢ) ≤ log p(x)} − N/2| over N reference images: too unlikely or too likely.

    Args:
        reference_images: N, at most. Defaults to 2,048.

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
        log_probs = _LogProb(model)(sample_of(reference, self.reference_images))
        self.sorted_ = np.sort(log_probs)

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        known = tf.cast(self.sorted_, tf.float32)  # which all of them were
        below = tf.searchsorted(known, evidence.log_prob, side="right")
        return tf.abs(tf.cast(below, tf.float32) - len(self.sorted_) / 2)


class _SeveralModels(Statistic):
    """A statistic of the log-likelihoods under several models."""

    scope = "image"

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)

    def _restore(self, model: Any) -> None:
        self._members = [_LogProb(one) for one in model]

    def _log_probs(self, images: np.ndarray) -> np.ndarray:
        """Log-likelihoods, `[models, n]`."""
        return np.stack([member(images, self._progress) for member in self._members])


@register
class Waic(_SeveralModels):
    """−WAIC(x) = −E_θ[log p_θ(x)] + Var_θ[log p_θ(x)] over independently trained models.

    Example:
        >>> other = tfbnood.models.VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8)
        >>> statistic = tfbnood.statistics.get("waic").fit([model, other], x.train)
        >>> statistic.score(x.test[:5]).shape
        (5,)

    Reference: Generative ensembles for robust anomaly detection (Choi et al. 2018), arXiv:1810.01392.
    """

    name = "waic"

    def _check_model(self, model: Any) -> None:
        if not _are_models(model) or len(model) < 2:
            raise StatisticError(
                "model must be a list of at least two independently trained models for waic. "
                f"Received: {type(model).__name__}"
            )

    def _score(self, images: np.ndarray) -> np.ndarray:
        log_probs = self._log_probs(images)
        return -log_probs.mean(axis=0) + log_probs.var(axis=0)


@register
class LikelihoodRatio(_SeveralModels):
    """−(log p(x) − log p₀(x)) with a background model p₀, which was trained on images with mutated pixels.

    What both models know, such as smooth backgrounds, cancels out. `tfbnood train --mutation 0.3` trains p₀.

    Example:
        >>> background = tfbnood.models.VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8)
        >>> statistic = tfbnood.statistics.get("likelihood_ratio").fit([model, background], x.train)
        >>> statistic.score(x.test[:5]).shape
        (5,)

    Reference: Likelihood ratios for out-of-distribution detection (Ren et al. 2019), arXiv:1906.02845.
    """

    name = "likelihood_ratio"

    def _check_model(self, model: Any) -> None:
        if not _are_models(model) or len(model) != 2:
            raise StatisticError(
                "model must be a list of two, the model and the background model, for likelihood_ratio. "
                f"Received: {type(model).__name__}"
            )

    def _score(self, images: np.ndarray) -> np.ndarray:
        log_prob, background = self._log_probs(images)
        return background - log_prob


def _are_models(model: Any) -> bool:
    return isinstance(model, list | tuple) and all(
        callable(getattr(one, "log_prob", None)) for one in model
    )


@register
class Typicality(_LikelihoodStatistic):
    """|mean of −log p over a group − entropy|: is the group as surprising as in-distribution groups are?

    Scope "batch": images are shuffled into groups, and every image has its group's value.

    Args:
        group_size: images in a group. Defaults to 10.
        reference_images: images that estimate the entropy, at most. Defaults to 2,048.
        seed: of the groups.

    Example:
        >>> statistic = tfbnood.statistics.get("typicality", group_size=4).fit(model, x.train)
        >>> len(np.unique(statistic.score(x.test[:8])))  # one value a group
        2

    Reference: Detecting OOD inputs to deep generative models using typicality (Nalisnick et al. 2019),
    arXiv:1906.02994.
    """

    name = "typicality"
    scope = "batch"

    def __init__(self, *, group_size: int = 10, reference_images: int = 2048, seed: int = 0):
        if group_size < 1:
            raise StatisticError(
                f"group_size must be at least 1. Received: group_size={group_size}"
            )
        self.group_size = group_size
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)
        self.entropy_ = -float(self._log_prob(sample_of(reference, self.reference_images)).mean())

    def _score(self, images: np.ndarray) -> np.ndarray:
        surprise = -self._log_prob(images, self._progress)
        # Fewer images than a group are one smaller group: repeating them would not add evidence.
        size = min(self.group_size, len(images))
        scores = np.empty(len(images))
        random = np.random.RandomState(self.seed)
        for group in companion_groups(len(images), size, random):
            scores[group] = abs(surprise[group].mean() - self.entropy_)
        return scores


@register
class Complexity(EvidenceStatistic):
    """Bits of the image under the model minus bits of its PNG: unlikely for how simple it is.

    Example:
        >>> statistic = tfbnood.statistics.get("complexity").fit(model, x.train)
        >>> statistic.score(x.test[:5]).shape
        (5,)

    Reference: Input complexity and out-of-distribution detection (Serrà et al. 2020), arXiv:1909.11480.
    """

    name = "complexity"
    need = "log_prob"

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        return -evidence.log_prob / math.log(2) - png_bits(evidence.images)


@register
class Reconstruction(Statistic):
    """Mean squared error of a VAE's reconstruction, in squared grey levels.

    Example:
        >>> vae = tfbnood.models.VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8)
        >>> statistic = tfbnood.statistics.get("reconstruction").fit(vae, x.train)
        >>> np.allclose(statistic.score(x.test)[0], np.square(vae.reconstruct(x.test)[0] - x.test[0]).mean())
        True
    """

    name = "reconstruction"
    scope = "image"

    def _check_model(self, model: Any) -> None:
        if not callable(getattr(model, "reconstruct", None)):
            raise StatisticError(
                "model must have a method reconstruct(images), as tfbnood.models.VAE, for reconstruction. "
                f"Received: {type(model).__name__}"
            )

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)

    def _restore(self, model: Any) -> None:
        self._reconstruct = model.reconstruct

    def _score(self, images: np.ndarray) -> np.ndarray:
        errors = self._reconstruct(images) - images.astype(np.float32)
        return np.square(errors, dtype=np.float64).mean(axis=(1, 2, 3))


def png_bits(images: tf.Tensor) -> tf.Tensor:
    """Size of every image as a PNG file at the highest compression, in bits, float32 `[n]`."""

    def bits(image):
        return 8 * tf.strings.length(tf.io.encode_png(image, compression=9))

    sizes = tf.map_fn(bits, tf.cast(images, tf.uint8), fn_output_signature=tf.int32)
    return tf.cast(sizes, tf.float32)
