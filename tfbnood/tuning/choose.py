"""Chooses a statistic and its settings for a trained model, using only outliers made from in-distribution images."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from tfbnood._core.images import as_images
from tfbnood._core.sampling import halves
from tfbnood.data.pools import mix
from tfbnood.data.pseudo import pseudo_outliers
from tfbnood.errors import DataError, StatisticError
from tfbnood.metrics import auroc
from tfbnood.statistics.base import Statistic
from tfbnood.statistics.registry import get

__all__ = [
    "CANDIDATES",
    "STREAM_SHARE",
    "RankedStatistic",
    "choose_statistic",
    "judged",
    "pseudo_aurocs",
]

STREAM_SHARE = 0.2
"""Share of outliers in the pools on which batch statistics are judged: a stream with a few of them."""

CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *((name, {}) for name in ("ensemble", "bn_moments", "log_prob", "complexity", "t_perm")),
    *((name, {}) for name in ("pixel_pca", "pixel_knn", "typicality", "bn_delta")),
    *(
        ("bn_delta", {"mixing": "moments", "r1": r1, "r2": r2, "batch_size": size})
        for size in (32, 64, 128)
        for r1 in (0.0, 0.1)
        for r2 in (0.9, 1.0)
    ),
    *(("bn_delta_grouped", {"batch_size": size}) for size in (16, 32, 64)),
)
"""What `choose_statistic` tries: names and settings that suit every model of `tfbnood.models`."""


@dataclasses.dataclass(frozen=True)
class RankedStatistic:
    """How well a statistic with its settings found pseudo-outliers.

    Attributes:
        name: of the statistic.
        settings: those that differ from the default.
        scope: "image", or "batch" if a score depends on the other images.
        mean_auroc: over the kinds; None if the statistic does not suit the model or the images.
        aurocs: by the kind of pseudo-outlier.
        error: why there is no AUROC.

    Example:
        >>> best, *others = choose_statistic(None, x.calibration, reference=x.train, candidates=["pixel_pca"])
        >>> best.name, best.settings, best.mean_auroc > 0.5
        ('pixel_pca', {}, True)
    """

    name: str
    settings: Mapping[str, Any]
    scope: str
    mean_auroc: float | None
    aurocs: Mapping[str, float]
    error: str | None = None


def choose_statistic(
    model: Any,
    images: Any,
    *,
    reference: Any,
    candidates: Iterable[str | Sequence] = CANDIDATES,
    contamination: float = STREAM_SHARE,
    seed: int = 0,
    progress: bool = False,
) -> tuple[RankedStatistic, ...]:
    """Ranks statistics and their settings (r1, r2, b, mixing, draws, …) for a given model, without training.

    Args:
        model: any model that statistics can use.
        images: held-out in-distribution images, `[n, height, width, channels]` in 0–255. A random half is scored as it
            is, the other is spoiled by `tfbnood.pseudo.pseudo_outliers`; real outliers and rotations are never used.
            For exact p-values, do not use the images that a detector will be calibrated on.
        reference: in-distribution images to fit statistics to, e.g. the training images.
        candidates: names, or `(name, settings)`. Defaults to `CANDIDATES`. `ensemble` is judged without `pretext`,
            which is trained on pseudo-outliers and would only seem to be better.
        contamination: share of outliers in the pools that batch statistics score. Defaults to 0.2, a stream. With 1,
            the paper's protocol, inliers and outliers are separate pools, and batch statistics look better than they
            are in a stream.
        seed: of the halves, the spoiling and the pools.
        progress: show a bar on a terminal.

    Returns:
        The best first; those that do not suit the model or the images last, with the reason.

    Raises:
        StatisticError: if a candidate is unknown or has wrong settings, or none of them works.

    Example:
        >>> pixels = np.random.RandomState(0).randint(0, 200, (90, 8, 8, 1), np.uint8)
        >>> candidates = ["pixel_pca", ("pixel_knn", {"neighbours": 1})]
        >>> ranked = choose_statistic(None, pixels[:40], reference=pixels[40:], candidates=candidates)
        >>> sorted(ranked[0].aurocs)[:3]
        ['blend', 'blur', 'bright']
    """
    images = as_images(images, getattr(model, "image_shape", None))
    if not 0 < contamination <= 1:
        raise DataError(f"contamination must lie in (0, 1]. Received: {contamination!r}")
    pairs = [(one, {}) if isinstance(one, str) else tuple(one) for one in candidates]
    # Make all of them before fitting any: fail now, not later.
    statistics = [judged(name, **settings) for name, settings in pairs]
    if not statistics:
        raise StatisticError("candidates must hold at least one statistic. Received: none")
    ranked = []
    for (name, settings), statistic in tqdm(
        list(zip(pairs, statistics, strict=True)),
        desc="statistics",
        disable=None if progress else True,
    ):
        try:
            statistic.fit(model, reference)
            aurocs = pseudo_aurocs(statistic, images, contamination=contamination, seed=seed)
            mean, error = float(np.mean(list(aurocs.values()))), None
        except StatisticError as problem:
            aurocs, mean, error = {}, None, str(problem)
        ranked.append(RankedStatistic(name, dict(settings), statistic.scope, mean, aurocs, error))
    ranked.sort(key=lambda one: -1.0 if one.mean_auroc is None else one.mean_auroc, reverse=True)
    if ranked[0].mean_auroc is None:
        raise StatisticError(f"no candidate works; {ranked[0].name}: {ranked[0].error}")
    return tuple(ranked)


def judged(statistic: str | Statistic, **settings: Any) -> Statistic:
    """Makes a statistic without `pretext`, which is trained on pseudo-outliers and cannot be judged on them."""
    found = get(statistic, **settings)
    if found.name == "pretext":
        raise StatisticError("pretext is trained on pseudo-outliers, and cannot be judged on them")
    if found.name != "ensemble":
        return found
    return get("ensemble", **{**found.get_config(), "pretext": False})


def pseudo_aurocs(
    statistic: Statistic, images: np.ndarray, *, contamination: float = STREAM_SHARE, seed: int = 0
) -> dict[str, float]:
    """AUROC of a fitted statistic by kind of pseudo-outlier; inliers and spoiled images are different halves.

    Args:
        statistic: fitted.
        images: held-out in-distribution images, `[n, height, width, channels]` in 0–255, n ≥ 4.
        contamination: as for `choose_statistic`; has no effect on statistics of single images.
        seed: of the halves, the spoiling and the pools.

    Example:
        >>> pixels = np.random.RandomState(0).randint(0, 200, (90, 8, 8, 1), np.uint8)
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, pixels[40:])
        >>> pseudo_aurocs(statistic, pixels[:40])["blur"]
        0.0
    """
    if len(images) < 4:
        raise DataError(f"images must be at least 4, two halves of two. Received: {len(images)}")
    inliers, to_spoil = halves(images, seed)
    outliers = pseudo_outliers(to_spoil, seed=seed)
    if statistic.scope == "image" or contamination == 1:
        is_ood = np.repeat([False, True], [len(inliers), len(to_spoil)])
        own = statistic.score(inliers)
        return {
            kind: auroc(is_ood, np.concatenate([own, statistic.score(spoiled)]))
            for kind, spoiled in outliers.items()
        }
    aurocs = {}
    for kind, spoiled in outliers.items():
        pool, is_ood = mix(inliers, spoiled, contamination, seed=seed)
        aurocs[kind] = auroc(is_ood, statistic.score(pool))
    return aurocs
