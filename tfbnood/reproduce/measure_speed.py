"""The stage `speed`: what mixing moments instead of samples saves."""

import time
from typing import TypedDict

import numpy as np

from tfbnood import statistics
from tfbnood.reproduce.context import StudyContext

__all__ = ["Speed", "measure_speed"]


class Speed(TypedDict):
    """Images per second by kind of mixing, and moments over samples."""

    images: int
    images_a_second: dict[str, float]
    ratio: float


def measure_speed(context: StudyContext, most: int = 256) -> Speed:
    """Images per second of both kinds of mixing, measured alternately in one process."""
    images = context.dataset.test[:most]
    ways = {
        mixing: statistics.get("bn_delta", mixing=mixing, draws=(1, 1)).fit(
            context.model, context.dataset.train
        )
        for mixing in ("samples", "moments")
    }
    seconds: dict[str, list[float]] = {mixing: [] for mixing in ways}
    for repeat in range(4):
        for mixing, statistic in ways.items():
            began = time.perf_counter()
            statistic.score(images)
            if repeat:  # The first one compiles.
                seconds[mixing].append(time.perf_counter() - began)
    rates = {mixing: len(images) / float(np.median(times)) for mixing, times in seconds.items()}
    return {
        "images": len(images),
        "images_a_second": rates,
        "ratio": rates["moments"] / rates["samples"],
    }
