"""Tests whether a group of images is as surprising as in-distribution groups."""

import numpy as np

from tfbnood._core.sampling import sample_of
from tfbnood.errors import StatisticError
from tfbnood.protocols import Likelihood
from tfbnood.scoring.compiled import compile_log_prob
from tfbnood.scoring.conditional import companion_groups
from tfbnood.statistics.base import Statistic

__all__ = ["Typicality"]


class Typicality(Statistic):
    """|mean of −log p over a group − entropy|: is the group as surprising as in-distribution groups?

    Scope "batch": images are shuffled into groups, and every image has its group's value.

    Args:
        group_size: images in a group. Defaults to 10.
        reference_images: maximum number of images to estimate the entropy from. Defaults to 2,048.
        seed: of the groups.

    Example:
        >>> statistic = tfbnood.statistics.get("typicality", group_size=4).fit(model, x.train)
        >>> len(np.unique(statistic.score(x.test[:8])))  # one value per group
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

    def _fit(self, model: Likelihood, reference: np.ndarray) -> None:
        self._restore(model)
        some = sample_of(reference, self.reference_images)
        self.entropy_ = -float(self._log_prob(some).mean(dtype=np.float64))

    def _fitted_names(self) -> tuple[str, ...]:
        return ("entropy_",)

    def _restore(self, model: Likelihood) -> None:
        self._log_prob = compile_log_prob(model, self.image_shape_)

    def _score(self, images: np.ndarray) -> np.ndarray:
        surprise = -self._log_prob(images, "log p").astype(np.float64)
        # Fewer images than a group form one smaller group: repeating them would not add evidence.
        size = min(self.group_size, len(images))
        scores = np.empty(len(images))
        for group in companion_groups(len(images), size, seed=self.seed).numpy()[0]:
            scores[group] = abs(surprise[group].mean() - self.entropy_)
        return scores
