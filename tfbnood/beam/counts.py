"""Summarises a group of any size: how many images have which rank among the calibration scores."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import apache_beam as beam
import numpy as np

__all__ = ["Counts", "Rank", "group_p_value"]

Rank: TypeAlias = tuple[int, int]
"""The cluster of an image, 0 without clusters, and the number of its calibration scores at or above the image's."""


class Counts(beam.CombineFn):
    """Ranks → how often each occurs."""

    def create_accumulator(self) -> dict[Rank, int]:
        return {}

    def add_input(self, counts: dict[Rank, int], rank: Rank) -> dict[Rank, int]:
        counts[rank] = counts.get(rank, 0) + 1
        return counts

    def merge_accumulators(self, several: Iterable[dict[Rank, int]]) -> dict[Rank, int]:
        merged: dict[Rank, int] = {}
        for counts in several:
            for rank, count in counts.items():
                merged[rank] = merged.get(rank, 0) + count
        return merged

    def extract_output(self, counts: dict[Rank, int]) -> dict[Rank, int]:
        return counts


def group_p_value(
    counts: Mapping[Rank, int],
    calibration: Sequence[int],
    method: str,
    *,
    permutations: int = 999,
    most_images: int = 10_000,
    seed: int = 0,
) -> float:
    """P-value of a group, as `batch_p_value` and `batch_p_value_within` compute it from scores: ranks suffice.

    Args:
        counts: how many images have which rank.
        calibration: number of calibration scores in each cluster; one number without clusters.
        method: a name of `BATCH_TESTS`.
        permutations: random groups to compare with.
        most_images: maximum number of images to test; from a larger group, a random sample.
        seed: of the sample.
    """
    from tfbnood.calibration.batch_tests import batch_p_value, batch_p_value_within

    found = sorted(counts)
    images = np.array([counts[rank] for rank in found], np.int64)
    if images.sum() > most_images:
        random = np.random.default_rng(seed)
        images = random.multivariate_hypergeometric(images, most_images, method="marginals")
    clusters, ranks = np.repeat(np.array(found), images, axis=0).T
    # Numbers in the order of the scores. Images of one rank differ slightly: a tie counts against an alarm.
    scores = -(ranks + np.arange(len(ranks)) / (4 * len(ranks)))
    nulls = [-(np.arange(size) + 0.5) for size in calibration]
    if len(nulls) == 1:
        return batch_p_value(scores, nulls[0], method, permutations=permutations)
    return batch_p_value_within(scores, clusters, nulls, method, permutations=permutations)
