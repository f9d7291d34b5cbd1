"""Passes any number of images through a fitted statistic: scores, p-values and likelihoods, and the calibration."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfbnood._core.batching import map_batches
from tfbnood._core.stream import CHUNK, ImageStream
from tfbnood._core.units import bits_per_dim
from tfbnood.calibration.certificates import certified_rank
from tfbnood.calibration.clusters import Clusters
from tfbnood.calibration.conformal import (
    Calibration,
    calibrate,
    check_false_alarm_rate,
    conformal_p_values,
    highest,
    score_threshold,
)
from tfbnood.calibration.mondrian import Mondrian, highest_within
from tfbnood.calibration.rates import default_false_alarm_rate
from tfbnood.data.changes import change
from tfbnood.errors import StatisticError
from tfbnood.statistics.base import EvidenceStatistic, Statistic

__all__ = [
    "alarm_level",
    "alarm_levels",
    "calibrate_with_changes",
    "outputs",
    "request_size",
    "thresholds",
]


def request_size(images: np.ndarray | ImageStream) -> int:
    """The number of images scored together, if companions matter: all of an array, 64 of a stream."""
    return CHUNK if isinstance(images, ImageStream) else len(images)


def outputs(
    statistic: Statistic,
    images: np.ndarray | ImageStream,
    null: np.ndarray | None = None,
    *,
    within: Mondrian | None = None,
    clusters: Clusters | None = None,
    log_prob: Callable[..., Any] | None = None,
    watch: Callable[[np.ndarray, np.ndarray], None] | None = None,
    progress: bool | None = None,
) -> dict[str, np.ndarray]:
    """`score`; with a null, `p_value`; with `log_prob`, `bits_per_dim`; each `[n]`, in constant memory.

    With clusters also `cluster`.

    Args:
        statistic: fitted.
        images: checked.
        null: sorted calibration scores.
        within: calibration scores by cluster, for p-values within an image's cluster.
        clusters: only to report each image's. Defaults to those of `within`.
        log_prob: `(images, description, progress)` → nats `[n]`, for statistics whose own pass does not compute them.
        watch: called with every chunk and its scores. If companions matter, the last chunk of a stream includes the
            images that complete it.
        progress: as for `tfbnood._core.progress.bar`.

    Example:
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, x.train)
        >>> {name: values.shape for name, values in outputs(statistic, x.test, np.arange(9.0)).items()}
        {'score': (397,), 'p_value': (397,)}
    """
    if isinstance(images, ImageStream):
        return map_batches(
            lambda chunk: outputs(
                statistic,
                chunk,
                null,
                within=within,
                clusters=clusters,
                log_prob=log_prob,
                watch=watch,
                progress=False,
            ),
            images,
            batch_size=CHUNK,
            complete=statistic.scope == "batch",
            description=statistic.name,
            progress=progress,
        )
    clusters = within.clusters if within is not None else clusters
    if isinstance(statistic, EvidenceStatistic):
        assign = None if clusters is None else clusters.tensor_assign
        score = statistic.scorer(likelihood=log_prob is not None, assign=assign)
        found = score(images, null, description=statistic.name, progress=progress)
        found = {**found, "score": statistic.checked(found["score"])}
    else:
        found = {"score": statistic.score(images, progress=progress)}
        if null is not None:
            found["p_value"] = conformal_p_values(found["score"], null)
        if log_prob is not None:
            nats = log_prob(images, "log p", progress)
            found["bits_per_dim"] = bits_per_dim(nats, images.shape[1:])
        if clusters is not None:
            found["cluster"] = clusters.assign(statistic, images)
    if within is not None:
        found["p_value"] = within.p_values(found["score"], found["cluster"])
    if watch is not None:
        watch(images, found["score"])
    return found


def calibrate_with_changes(
    statistic: Statistic,
    images: np.ndarray | ImageStream,
    changes: Sequence[str] = (),
    *,
    group_sizes: tuple[int, ...] | None = None,
    clusters: Clusters | None = None,
    seed: int = 1,
) -> Calibration:
    """Scores held-out images, clean and with every kind of change, and takes the largest p-value.

    Args:
        statistic: fitted; one of scope "batch" takes arrays only.
        images: checked, in-distribution.
        changes: names of `tfbnood.data.CHANGES`.
        group_sizes: as for `calibrate`.
        clusters: to calibrate within.
        seed: of the changes; in a stream every chunk has its own seed.

    Example:
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, x.train)
        >>> calibrate_with_changes(statistic, x.calibration, ("blur",))
        <Calibration: 300 scores, false-alarm rates from 0.0033>
    """
    if isinstance(images, np.ndarray) and clusters is None:
        changed = (change(images, kind, seed=seed) for kind in changes)
        return highest(
            [calibrate(statistic, one, group_sizes=group_sizes) for one in (images, *changed)]
        )
    seeds = itertools.count(seed)

    def scores(chunk: np.ndarray) -> dict[str, np.ndarray]:
        own = next(seeds)
        images = {"clean": chunk} | {kind: change(chunk, kind, seed=own) for kind in changes}
        return {
            f"{kind}/{name}": values
            for kind, one in images.items()
            for name, values in outputs(statistic, one, clusters=clusters).items()
        }

    if isinstance(images, np.ndarray):
        found = scores(images)
    else:
        found = map_batches(
            scores, images, batch_size=CHUNK, complete=False, description="calibrating"
        )
    kinds = ("clean", *changes)
    merged = highest([Calibration({1: np.sort(found[f"{kind}/score"])}, {}) for kind in kinds])
    if clusters is None:
        return merged
    parts = [Mondrian.of(clusters, found[f"{k}/score"], found[f"{k}/cluster"]) for k in kinds]
    return dataclasses.replace(merged, within=highest_within(parts))


def alarm_level(
    null: np.ndarray,
    fpr: float | None = None,
    *,
    confidence: float | None = None,
    scope: str = "image",
) -> tuple[float, str]:
    """The largest p-value that raises an alarm, and the rule in words.

    Args:
        null: calibration scores.
        fpr: false-alarm rate. Defaults to `default_false_alarm_rate`.
        confidence: with which the rate holds, rather than on average.
        scope: of the statistic.

    Example:
        >>> alarm_level(np.arange(999.0), 0.05, confidence=0.95)
        (0.039, 'false-alarm rate at most 0.05 with 95 % confidence')
    """
    fpr = default_false_alarm_rate(len(null)) if fpr is None else fpr
    if confidence is None:
        check_false_alarm_rate(fpr, null)
        return fpr, f"false-alarm rate {fpr:g}"
    if scope != "image":
        raise StatisticError(
            'confidence needs a statistic of scope "image": the scores of one request depend on each other. '
            f"Received: scope={scope!r}"
        )
    level = certified_rank(len(null), fpr, confidence) / (len(null) + 1)
    return level, f"false-alarm rate at most {fpr:g} with {100 * confidence:g} % confidence"


def alarm_levels(
    calibration: Calibration,
    size: int,
    fpr: float | None = None,
    *,
    confidence: float | None = None,
) -> tuple[np.ndarray, str]:
    """The largest p-values that raise an alarm, by cluster or one for all, and the rule in words.

    Args:
        calibration: of the statistic.
        size: of the request.
        fpr: as for `alarm_level`.
        confidence: as for `alarm_level`.

    Example:
        >>> alarm_levels(tfbnood.calibration.Calibration({1: np.arange(99.0)}, {}), 1, 0.05)
        (array([0.05]), 'false-alarm rate 0.05')
    """
    if calibration.within is not None:
        return calibration.within.alarm_levels(fpr, confidence=confidence)
    null, scope = calibration.null_of_images(size), "batch" if calibration.batch_scores else "image"
    level, rule = alarm_level(null, fpr, confidence=confidence, scope=scope)
    return np.array([level]), rule


def thresholds(calibration: Calibration, size: int, levels: np.ndarray) -> np.ndarray:
    """The scores above which alarms are raised, by cluster or one for all.

    Example:
        >>> thresholds(tfbnood.calibration.Calibration({1: np.arange(99.0)}, {}), 1, np.array([0.05]))
        array([94.])
    """
    if calibration.within is not None:
        return calibration.within.thresholds(levels)
    return np.array([score_threshold(calibration.null_of_images(size), levels[0])])
