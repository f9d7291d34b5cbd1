"""Pools of inliers and outliers by share, and the scores of their images."""

from collections.abc import Container, Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from tfbnood._core.stream import sample_images
from tfbnood.data.pools import mix_rows
from tfbnood.errors import DataError
from tfbnood.statistics.base import EvidenceStatistic, Statistic, scorer_of

__all__ = ["MOST", "checked_outliers"]

MOST = 10_000
"""Maximum images of a stream: more change an AUROC by less than its interval."""


def checked_outliers(
    outliers: Any, image_shape: Any, *, most: int = MOST, seed: int = 0
) -> dict[str, np.ndarray]:
    """Checks a dict of image sets; from a stream, a random sample of limited size is read."""
    if not isinstance(outliers, Mapping) or not outliers:
        raise DataError(
            'outliers must be a dict of images by name, such as {"mnist": images}, with at least one. '
            f"Received: {'an empty dict' if isinstance(outliers, Mapping) else type(outliers).__name__}"
        )
    for name in outliers:
        if not isinstance(name, str) or name in ("", "inliers"):
            raise DataError(
                f'names in outliers must be strings other than "inliers". Received: {name!r}'
            )
    return {
        name: sample_images(images, image_shape, most=most, seed=seed, name=f"outliers[{name!r}]")
        for name, images in outliers.items()
    }


def checked_shares(contamination: Any) -> tuple[float, ...]:
    shares = tuple(contamination) if isinstance(contamination, Iterable) else (contamination,)
    if not shares:
        raise DataError("contamination must hold at least one share. Received: none")
    for share in shares:
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < float(share) <= 1:
            raise DataError(f"contamination must lie in (0, 1]. Received: {share!r}")
    return tuple(dict.fromkeys(map(float, shares)))


def pool_rows(inliers: int, outliers: int, share: float, seed: int) -> np.ndarray:
    """The rows of inliers followed by outliers in a pool with this share."""
    if share == 1:
        return np.arange(inliers + outliers)
    return mix_rows(inliers, outliers, share, seed=seed)


def scores_apart(
    labelled: Mapping[str, Statistic],
    of_the_model: Container[str],
    sets: Mapping[str, np.ndarray],
    pure: bool,
    progress: bool | None,
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Scores by label and set, each set as a separate pool; those of batch statistics only if `pure`.

    Statistics of single images that were fitted to the same model share its passes. The second result is log p by set,
    as far as those passes compute it.
    """
    together = {
        label: one
        for label, one in labelled.items()
        if label in of_the_model and isinstance(one, EvidenceStatistic)
    }
    scores: dict[str, dict[str, np.ndarray]] = {label: {} for label in together}
    log_probs = {}
    # Compiled once for all sets.
    one_pass: Any = scorer_of(list(together.values())) if together else None
    for name, images in sets.items() if together else ():
        description = ", ".join(one.name for one in together.values())
        found = one_pass(images, description=description, progress=progress)
        for (label, one), column in zip(together.items(), found["score"].T, strict=True):
            scores[label][name] = one.checked(column)
        if "log_prob" in found:
            log_probs[name] = found["log_prob"]
    for label, statistic in labelled.items():
        if label not in together and (pure or statistic.scope == "image"):
            scores[label] = {
                name: statistic.score(images, progress=progress) for name, images in sets.items()
            }
    return scores, log_probs


def pool_scores(
    statistic: Statistic,
    apart: Mapping[str, np.ndarray],
    inliers: np.ndarray,
    sets: Mapping[str, np.ndarray],
    pools: Mapping[tuple[str, float], np.ndarray],
    progress: bool | None,
) -> dict[tuple[str, float], np.ndarray]:
    """Scores of every pool's images; at share 1, of two pools, inliers first."""
    scores = {}
    for (name, share), rows in pools.items():
        if (
            share == 1 or statistic.scope == "image"
        ):  # The scores are known: companions are the same, or do not matter.
            scores[name, share] = np.concatenate([apart["inliers"], apart[name]])[rows]
        else:
            pool = np.concatenate([inliers, sets[name]])[rows]
            scores[name, share] = statistic.score(pool, progress=progress)
    return scores
