"""Statistics that compare the log-likelihoods of several models."""

from typing import Any

import numpy as np

from tfbnood.errors import StatisticError
from tfbnood.scoring.compiled import compile_log_prob
from tfbnood.statistics.base import Statistic

__all__ = ["LikelihoodRatio", "Waic"]


class _SeveralModels(Statistic):
    """A statistic of the log-likelihoods under several models."""

    scope = "image"

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)

    def _restore(self, model: Any) -> None:
        self._members = [compile_log_prob(one, self.image_shape_) for one in model]

    def _log_probs(self, images: np.ndarray) -> np.ndarray:
        """Log-likelihoods, `[models, n]`."""
        return np.stack([member(images, "log p") for member in self._members]).astype(np.float64)


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
