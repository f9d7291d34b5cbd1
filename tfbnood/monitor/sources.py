"""What a monitor compares with: the held-out scores of a detector, of a calibration or of an array."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfbnood.errors import DataError, NotCalibratedError

__all__ = ["Score", "as_groups", "as_keys", "as_scores", "as_source"]

_GROUP = (int, np.integer, str)


Score = Callable[[Any], np.ndarray]


def as_source(source: Any, *, grouped: bool = False) -> tuple[np.ndarray, Score | None]:
    """The held-out scores `[n]` of a detector, a calibration or an array, and a detector's function to score images.

    Args:
        source: a calibrated `Detector`, a `Calibration`, or scores.
        grouped: whether every score has a group, which sorting has lost.

    Raises:
        NotCalibratedError: a detector without calibration.
        DataError: anything else.

    Example:
        >>> scores, score = as_source(detector)
        >>> scores.shape, score(x.test[:2]).shape, as_source([1.0, 2.0])[1]
        ((300,), (2,), None)
    """
    detector = hasattr(source, "calibration") and hasattr(source, "score")
    if detector and source.calibration is None:
        raise NotCalibratedError(
            "call calibrate() with held-out in-distribution images before Monitor()"
        )
    calibration = source.calibration if detector else source
    if not hasattr(calibration, "null_of_images"):
        scores = as_scores(source, "source")
        if len(scores) < 1:
            raise DataError("source must hold at least one held-out score. Received: none")
        return scores, None
    if grouped:
        raise DataError(
            "groups needs held-out scores in an array; those of a calibration are sorted. "
            f"Received: source={type(source).__name__}"
        )
    scores = as_scores(calibration.null_of_images(1), "held-out scores")
    if not detector:
        return scores, None
    # One by one, so that chunks do not matter: with a batch statistic, a score depends on the other images.
    alone = set(calibration.image_scores) != {1}
    return scores, _one_by_one(source.score) if alone else source.score


def _one_by_one(score: Score) -> Score:
    return lambda images: np.concatenate([score(images[i : i + 1]) for i in range(len(images))])


def as_scores(scores: Any, name: str = "scores") -> np.ndarray:
    """Checks scores and returns them as float64 `[n]`.

    Example:
        >>> as_scores([1, 2])
        array([1., 2.])
    """
    try:
        array = np.asarray(scores)
        kind = array.dtype.kind
    except ValueError:
        kind = "O"
    if kind not in "iuf":
        wanted = (
            "a calibrated Detector, a Calibration or numbers" if name == "source" else "numbers"
        )
        raise DataError(f"{name} must be {wanted} of shape [n]. Received: {type(scores).__name__}")
    if array.ndim != 1:
        raise DataError(f"{name} must have shape [n]. Received: shape={array.shape}")
    array = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise DataError(
            f"{name} must be finite; leave out images that cannot be scored. "
            f"Received: {len(bad)} of {len(array)} that are not finite, first at index {bad[0]}"
        )
    return array


def as_groups(groups: Any, count: int) -> list[int | str]:
    """Checks one group per score, integers or names; None means one group for all.

    Example:
        >>> as_groups(np.array([3, 4]), 2), as_groups(None, 2)
        ([3, 4], ['', ''])
    """
    if groups is None:
        return [""] * count
    found = list(groups)
    if len(found) != count or not all(isinstance(one, _GROUP) for one in found):
        raise DataError(
            f"groups must be {count} integers or names, one per score. Received: {len(found)} of "
            f"{', '.join(sorted({type(one).__name__ for one in found})) or 'none'}"
        )
    return [one if isinstance(one, str) else int(one) for one in found]


def as_keys(keys: Sequence[Any] | None, count: int) -> list[Any]:
    """Checks one key per image; None means no keys.

    Example:
        >>> as_keys(["a.png", "b.png"], 2), as_keys(None, 1)
        (['a.png', 'b.png'], [None])
    """
    if keys is None:
        return [None] * count
    found = [one.item() if isinstance(one, np.generic) else one for one in keys]
    if len(found) != count or not all(isinstance(one, str | int | float | None) for one in found):
        raise DataError(
            f"keys must be {count} names or numbers, one per image. Received: {len(found)} of "
            f"{', '.join(sorted({type(one).__name__ for one in found})) or 'none'}"
        )
    return found
