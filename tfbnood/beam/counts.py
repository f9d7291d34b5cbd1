"""What is kept of a group of any size: how many images have which rank among the calibration scores."""

from collections.abc import Iterable, Mapping

import apache_beam as beam
import numpy as np

__all__ = ["Counts", "group_p_value"]


class Counts(beam.CombineFn):
    """Ranks → how often each occurs."""

    def create_accumulator(self) -> dict[int, int]:
        return {}

    def add_input(self, counts: dict[int, int], rank: int) -> dict[int, int]:
        counts[rank] = counts.get(rank, 0) + 1
        return counts

    def merge_accumulators(self, several: Iterable[dict[int, int]]) -> dict[int, int]:
        merged: dict[int, int] = {}
        for counts in several:
            for rank, count in counts.items():
                merged[rank] = merged.get(rank, 0) + count
        return merged

    def extract_output(self, counts: dict[int, int]) -> dict[int, int]:
        return counts


def group_p_value(
    counts: Mapping[int, int],
    calibration: int,
    method: str,
    *,
    permutations: int = 999,
    most_images: int = 10_000,
    seed: int = 0,
) -> float:
    """P-value of a group, as `batch_p_value` has it of the scores: their ranks are all that matters.

    Args:
        counts: how many images have how many calibration scores at or above their own.
        calibration: how many calibration scores there are.
        method: a name of `BATCH_TESTS`.
        permutations: random groups to compare with.
        most_images: images that are tested; of a larger group, as many at random.
        seed: of their choice.
    """
    from tfbnood.calibration.batch_tests import batch_p_value

    ranks = np.array(sorted(counts))
    images = np.array([counts[rank] for rank in ranks.tolist()], np.int64)
    if images.sum() > most_images:
        random = np.random.default_rng(seed)
        images = random.multivariate_hypergeometric(images, most_images, method="marginals")
    ranks = np.repeat(ranks, images)
    # Numbers with the same order as the scores. Images of one rank differ by a little: a tie counts against an alarm.
    scores = -(ranks + np.arange(len(ranks)) / (4 * len(ranks)))
    return batch_p_value(scores, -(np.arange(calibration) + 0.5), method, permutations=permutations)
