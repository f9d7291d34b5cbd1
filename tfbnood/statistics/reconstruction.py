"""How well a VAE reconstructs an image."""

from typing import Any

import numpy as np

from tfbnood.errors import StatisticError
from tfbnood.protocols import Reconstructor
from tfbnood.statistics.base import Statistic

__all__ = ["Reconstruction"]


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
        if not isinstance(model, Reconstructor):
            raise StatisticError(
                "model must have a method reconstruct(images), like tfbnood.models.VAE, for reconstruction. "
                f"Received: {type(model).__name__}"
            )

    def _fit(self, model: Reconstructor, reference: np.ndarray) -> None:
        self._restore(model)

    def _fitted_names(self) -> tuple[str, ...]:
        return ()

    def _restore(self, model: Reconstructor) -> None:
        self._reconstruct = model.reconstruct

    def _score(self, images: np.ndarray) -> np.ndarray:
        errors = self._reconstruct(images) - images.astype(np.float32)
        return np.square(errors, dtype=np.float64).mean(axis=(1, 2, 3))
