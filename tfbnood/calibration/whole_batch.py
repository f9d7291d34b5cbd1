"""Tests a batch as a whole against a calibration: its p-value, and the contribution of each image."""

from typing import Any

import numpy as np

from tfbnood.calibration.batch_tests import batch_p_value, batch_p_value_within, contributions
from tfbnood.calibration.conformal import Calibration, conformal_p_values
from tfbnood.errors import StatisticError
from tfbnood.statistics.base import Statistic

__all__ = ["assess_batch", "check_forgiving"]


def check_forgiving(calibration: Calibration, forgive_mix: bool | None) -> bool:
    """Whether a test forgives a change of mix. By default it does, if the calibration allows it.

    Example:
        >>> check_forgiving(tfbnood.calibration.Calibration({1: np.arange(9.0)}, {}), None)
        False
    """
    if forgive_mix and calibration.within is None:
        raise StatisticError(
            "forgive_mix needs a calibration within clusters: calibrate(held_out_images, clusters=10). "
            f"Received: forgive_mix={forgive_mix}"
        )
    return calibration.within is not None if forgive_mix is None else bool(forgive_mix)


def assess_batch(
    statistic: Statistic,
    images: Any,
    scores: np.ndarray,
    clusters: np.ndarray | None,
    calibration: Calibration,
    method: str,
) -> tuple[float, np.ndarray, np.ndarray]:
    """The batch's p-value, the images' p-values `[n]`, and how much of the test's value each carries, `[n]`.

    Args:
        statistic: fitted.
        images: of the batch; used only by a statistic of scope "batch" that computes contributions itself.
        scores: `[n]`.
        clusters: `[n]`, to test within them; None compares with all calibration images.
        calibration: of the statistic.
        method: a name of `BATCH_TESTS`, or "mean" for a statistic of scope "batch".
    """
    if statistic.scope == "batch":
        null = calibration.null_of_images(len(scores))
        batches = calibration.null_of_batches(len(scores))
        p_value = float(conformal_p_values(scores.mean(), batches))
        if hasattr(statistic, "contributions") and isinstance(images, np.ndarray):
            carried = statistic.contributions(images)
        else:  # How much the mean would fall if the image were an ordinary one.
            carried = (scores - np.median(null)) / len(scores)
        return p_value, conformal_p_values(scores, null), carried
    if clusters is not None:
        assert calibration.within is not None
        p_value = batch_p_value_within(scores, clusters, calibration.within.nulls, method)
        p_values = calibration.within.p_values(scores, clusters)
    else:
        null = calibration.null_of_images(1)
        p_value, p_values = batch_p_value(scores, null, method), conformal_p_values(scores, null)
    return p_value, p_values, contributions(p_values, method)
