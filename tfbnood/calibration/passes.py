"""Any number of images through a fitted statistic: scores, p-values and likelihoods, and the calibration before."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfbnood._core.batching import map_batches
from tfbnood._core.stream import CHUNK, ImageStream
from tfbnood._core.units import bits_per_dim
from tfbnood.calibration.certificates import certified_rank
from tfbnood.calibration.conformal import (
    Calibration,
    calibrate,
    check_false_alarm_rate,
    conformal_p_values,
    highest,
)
from tfbnood.calibration.rates import default_false_alarm_rate
from tfbnood.data.changes import change
from tfbnood.errors import StatisticError
from tfbnood.statistics.base import EvidenceStatistic, Statistic

__all__ = ["alarm_level", "calibrate_with_changes", "outputs", "request_size"]


def request_size(images: np.ndarray | ImageStream) -> int:
    """How many images are each other's companions, where companions count: all of an array, 64 of a stream."""
    return CHUNK if isinstance(images, ImageStream) else len(images)


def outputs(
    statistic: Statistic,
    images: np.ndarray | ImageStream,
    null: np.ndarray | None = None,
    *,
    log_prob: Callable[..., Any] | None = None,
    watch: Callable[[np.ndarray, np.ndarray], None] | None = None,
    progress: bool | None = None,
) -> dict[str, np.ndarray]:
    """`score`, with a null `p_value`, and with `log_prob` `bits_per_dim`, each `[n]`, in constant memory.

    Args:
        statistic: fitted.
        images: checked.
        null: sorted calibration scores.
        log_prob: `(images, description, progress)` → nats `[n]`, for statistics whose own pass does not say them.
        watch: called with every chunk and its scores. Behind the last chunk of a stream it also sees the images that
            complete it, if companions count.
        progress: as for `tfbnood._core.progress.bar`.

    Example:
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, x.train)
        >>> {name: values.shape for name, values in outputs(statistic, x.test, np.arange(9.0)).items()}
        {'score': (397,), 'p_value': (397,)}
    """
    if isinstance(images, ImageStream):
        return map_batches(
            lambda chunk: outputs(
                statistic, chunk, null, log_prob=log_prob, watch=watch, progress=False
            ),
            images,
            batch_size=CHUNK,
            complete=statistic.scope == "batch",
            description=statistic.name,
            progress=progress,
        )
    if isinstance(statistic, EvidenceStatistic):
        score = statistic.scorer(likelihood=log_prob is not None)
        found = score(images, null, description=statistic.name, progress=progress)
        found = {**found, "score": statistic.checked(found["score"])}
    else:
        found = {"score": statistic.score(images, progress=progress)}
        if null is not None:
            found["p_value"] = conformal_p_values(found["score"], null)
        if log_prob is not None:
            nats = log_prob(images, "log p", progress)
            found["bits_per_dim"] = bits_per_dim(nats, images.shape[1:])
    if watch is not None:
        watch(images, found["score"])
    return found


def calibrate_with_changes(
    statistic: Statistic,
    images: np.ndarray | ImageStream,
    changes: Sequence[str] = (),
    *,
    group_sizes: tuple[int, ...] | None = None,
    seed: int = 1,
) -> Calibration:
    """Scores held-out images, clean and in every kind of change, and takes the largest of the p-values.

    Args:
        statistic: fitted; one of scope "batch" takes arrays only.
        images: checked, in-distribution.
        changes: names of `tfbnood.data.CHANGES`.
        group_sizes: as for `calibrate`.
        seed: of the changes; in a stream every chunk has its own.

    Example:
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, x.train)
        >>> calibrate_with_changes(statistic, x.calibration, ("blur",))
        <Calibration: 300 scores, false-alarm rates from 0.0033>
    """
    if isinstance(images, np.ndarray):
        changed = (change(images, kind, seed=seed) for kind in changes)
        return highest(
            [calibrate(statistic, one, group_sizes=group_sizes) for one in (images, *changed)]
        )
    seeds = itertools.count(seed)

    def scores(chunk: np.ndarray) -> dict[str, np.ndarray]:
        own = next(seeds)
        kinds = {"clean": chunk} | {kind: change(chunk, kind, seed=own) for kind in changes}
        return {kind: statistic.score(one, progress=False) for kind, one in kinds.items()}

    found = map_batches(scores, images, batch_size=CHUNK, complete=False, description="calibrating")
    return highest([Calibration({1: np.sort(one)}, {}) for one in found.values()])


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
        fpr: false-alarm rate. Defaults to 0.01, or to the smallest that few calibration scores allow.
        confidence: with which the rate is to hold, rather than on average.
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
