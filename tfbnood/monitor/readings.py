"""The results of a monitor."""

import dataclasses
from typing import Any

import numpy as np

__all__ = ["Exemplar", "Readings"]


@dataclasses.dataclass(frozen=True, eq=False)
class Readings:
    """What `Monitor.update` found, one entry per image.

    Attributes:
        index: of the first image in the stream.
        score: higher means more out-of-distribution.
        p_value: among the held-out scores alone, as `Detector.p_values`.
        stream_p_value: among the held-out scores and all earlier ones of the stream, ties broken at random; bets are
            placed on these.
        log_evidence: of the e-detector; the alarm is raised at log(run_length).
        log_martingale: of the test martingale.
        alarm: whether the alarm is on.
        discovery: by online FDR; None without `fdr`.

    Example:
        >>> tfbnood.Monitor(np.arange(99.0)).update(scores=[50.0, 99.0]).p_value
        array([0.5 , 0.01])
    """

    index: int
    score: np.ndarray
    p_value: np.ndarray
    stream_p_value: np.ndarray
    log_evidence: np.ndarray
    log_martingale: np.ndarray
    alarm: np.ndarray
    discovery: np.ndarray | None

    def __len__(self) -> int:
        return len(self.score)


@dataclasses.dataclass(frozen=True)
class Exemplar:
    """One of the strangest images: its place in the stream, the caller's key, its score and its p-value.

    Example:
        >>> Exemplar(7, "door.png", 3.5, 0.01).key
        'door.png'
    """

    index: int
    key: Any
    score: float
    p_value: float
