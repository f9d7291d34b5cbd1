"""Statistics that compare the log-likelihoods of several models."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfbnood._core.images import as_images
from tfbnood.errors import StatisticError
from tfbnood.protocols import Likelihood
from tfbnood.scoring.compiled import compile_log_prob
from tfbnood.statistics.base import Statistic

__all__ = ["LikelihoodRatio", "Waic"]


class _SeveralModels(Statistic):
    """A statistic of the log-likelihoods under several models."""

    scope = "image"

    def fit(self, model: Any, reference: Any, *, progress: bool | None = None) -> Statistic:
        self._check_model(model)
        reference = as_images(reference, _image_shape(model), name="reference")
        return super().fit(model, reference, progress=progress)

    def _fit(self, model: Sequence[Likelihood], reference: np.ndarray) -> None:
        self._restore(model)

    def _fitted_names(self) -> tuple[str, ...]:
        return ()

    def _restore(self, model: Sequence[Likelihood]) -> None:
        self._members = [compile_log_prob(one, self.image_shape_) for one in model]

    def _log_probs(self, images: np.ndarray) -> np.ndarray:
        """Log-likelihoods, `[models, n]`."""
        return np.stack([member(images, "log p") for member in self._members]).astype(np.float64)


class Waic(_SeveralModels):
    """−WAIC(x) = −E_θ[log p_θ(x)] + Var_θ[log p_θ(x)] over independently trained models.

    The variance is unbiased (1/(m − 1) over m models): its expectation does not depend on their number. With two it is
    (a − b)²/2. Choi et al. use five.

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
                f"Received: {_describe(model)}"
            )
        _image_shape(model)

    def _score(self, images: np.ndarray) -> np.ndarray:
        log_probs = self._log_probs(images)
        return -log_probs.mean(axis=0) + log_probs.var(axis=0, ddof=1)


class LikelihoodRatio(_SeveralModels):
    """−(log p(x) − log p₀(x)) with a background model p₀, trained on images with mutated pixels.

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
                f"Received: {_describe(model)}"
            )
        _image_shape(model)

    def _score(self, images: np.ndarray) -> np.ndarray:
        log_prob, background = self._log_probs(images)
        return background - log_prob


def _are_models(model: Any) -> bool:
    return isinstance(model, list | tuple) and all(isinstance(one, Likelihood) for one in model)


def _describe(model: Any) -> str:
    if not isinstance(model, list | tuple):
        return type(model).__name__
    return f"a list of {', '.join(type(one).__name__ for one in model) or 'none'}"


def _image_shape(models: Sequence[Likelihood]) -> tuple[int, int, int] | None:
    """The `image_shape` that all models share; None if no model has one."""
    shapes = {tuple(shape) for one in models if (shape := getattr(one, "image_shape", None))}
    if len(shapes) > 1:
        raise StatisticError(
            "models must all have one image_shape, or they cannot score the same images. "
            f"Received: {', '.join(map(str, sorted(shapes)))}"
        )
    return shapes.pop() if shapes else None
