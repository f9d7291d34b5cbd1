"""Statistics of a flow's latents, which should be draws from N(0, I)."""

from typing import Any

import numpy as np

from tfbnood.errors import StatisticError
from tfbnood.protocols import Encoder
from tfbnood.scoring.conditional import companion_groups
from tfbnood.statistics.base import Statistic

__all__ = ["LatentFit"]


class LatentFit(Statistic):
    """Goodness of fit of a group's latents to N(0, I): mean Kolmogorov–Smirnov distance over several projections.

    Random unit projections of a standard normal vector are standard normal; its squared length nearly is, after
    subtracting the mean d and dividing by √(2d). Scope "batch": every image has its group's value.

    Args:
        projections: number of random directions, besides the length. Defaults to 64.
        group_size: maximum number of images in a group. Defaults to 64.
        seed: of the directions and the groups.

    Example:
        >>> statistic = tfbnood.statistics.get("latent_fit", group_size=32).fit(model, x.train)
        >>> len(np.unique(statistic.score(x.test[:64])))  # one value per group
        2
    """

    name = "latent_fit"
    scope = "batch"

    def __init__(self, *, projections: int = 64, group_size: int = 64, seed: int = 0):
        for key, value in (("projections", projections), ("group_size", group_size)):
            if value < 1:
                raise StatisticError(f"{key} must be at least 1. Received: {key}={value}")
        self.projections = projections
        self.group_size = group_size
        self.seed = seed

    def _check_model(self, model: Any) -> None:
        if not isinstance(model, Encoder):
            raise StatisticError(
                "model must have a method encode(images), like tfbnood.models.RealNVP, for latent_fit. "
                f"Received: {type(model).__name__}"
            )

    def _fit(self, model: Encoder, reference: np.ndarray) -> None:
        self._restore(model)

    def _fitted_names(self) -> tuple[str, ...]:
        return ()

    def _restore(self, model: Encoder) -> None:
        self._encode = model.encode

    def _score(self, images: np.ndarray) -> np.ndarray:
        latents = self._encode(images).reshape(len(images), -1).astype(np.float64)
        values = _project(latents, self.projections, self.seed)
        scores = np.empty(len(images))
        size = min(self.group_size, len(images))
        for group in companion_groups(len(images), size, seed=self.seed).numpy()[0]:
            scores[group] = _distance_from_normal(values[group]).mean()
        return scores


def _project(latents: np.ndarray, projections: int, seed: int) -> np.ndarray:
    """Values that are standard normal when the latents are, `[n, projections + 1]`."""
    dimensions = latents.shape[1]
    directions = np.random.RandomState(seed).normal(size=(dimensions, projections))
    directions /= np.linalg.norm(directions, axis=0)
    length = (np.square(latents).sum(axis=1) - dimensions) / np.sqrt(2 * dimensions)
    return np.column_stack([latents @ directions, length])


def _distance_from_normal(values: np.ndarray) -> np.ndarray:
    """Kolmogorov–Smirnov distance of every column from N(0, 1)."""
    from scipy.special import ndtr

    shares = ndtr(np.sort(values, axis=0))
    count = len(values)
    steps = np.arange(count)[:, None] / count
    return np.maximum(shares - steps, steps + 1 / count - shares).max(axis=0)
