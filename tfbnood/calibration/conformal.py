"""From scores to p-values: conformal calibration on held-out in-distribution images."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.cards import card
from tfbnood._core.progress import bar
from tfbnood.errors import DataError, StatisticError
from tfbnood.statistics.base import Statistic

if TYPE_CHECKING:
    from tfbnood.calibration.mondrian import Mondrian

__all__ = [
    "Calibration",
    "benjamini_hochberg",
    "calibrate",
    "check_false_alarm_rate",
    "conformal_p_values",
    "highest",
    "score_threshold",
]


def conformal_p_values(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """P = (1 + #{calibration ≥ score}) / (n + 1), `[m]`: uniform or larger when the scores are in-distribution.

    Args:
        scores: `[m]`, higher means more out-of-distribution.
        calibration: `[n]`, scores of held-out in-distribution images.

    Example:
        >>> conformal_p_values(np.array([0.0, 2.5, 9.0]), np.array([1.0, 2.0, 3.0]))
        array([1.  , 0.5 , 0.25])
    """
    at_least = len(calibration) - np.searchsorted(np.sort(calibration), scores, side="left")
    return (1 + at_least) / (len(calibration) + 1)


def benjamini_hochberg(p_values: np.ndarray, fdr: float) -> np.ndarray:
    """Which hypotheses to reject so that the expected share of false ones among them is at most `fdr`, bool `[m]`.

    Example:
        >>> benjamini_hochberg(np.array([0.01, 0.02, 0.5]), 0.05)
        array([ True,  True, False])

    Reference: Benjamini & Hochberg 1995; for conformal p-values Bates et al. 2023, arXiv:2104.08279.
    """
    if not 0 < fdr < 1:
        raise DataError(f"fdr must lie in (0, 1). Received: fdr={fdr}")
    from scipy.stats import false_discovery_control

    # Conformal p-values often lie exactly on a bound; rounding errors must not make them miss it.
    return false_discovery_control(p_values) <= fdr * (1 + 1e-12)


def check_false_alarm_rate(fpr: float, calibration: np.ndarray) -> None:
    """Refuses a false-alarm rate that n calibration scores cannot resolve: no p-value lies below 1/(n + 1).

    Example:
        >>> check_false_alarm_rate(0.001, np.arange(99.0))
        Traceback (most recent call last):
            ...
        tfbnood.errors.DataError: fpr must be at least 1/(n + 1) = 0.01 with n=99 calibration scores; ...
    """
    least = 1 / (len(calibration) + 1)
    if not 0 < fpr < 1:
        raise DataError(f"fpr must lie in (0, 1). Received: fpr={fpr}")
    if fpr < least:
        raise DataError(
            f"fpr must be at least 1/(n + 1) = {least:.4g} with n={len(calibration)} calibration scores; "
            f"calibrate on more images. Received: fpr={fpr}"
        )


def score_threshold(calibration: np.ndarray, fpr: float) -> float:
    """The score above which, and only above which, `p ≤ fpr`: the k-th largest of n, `k = ⌊fpr · (n + 1)⌋`.

    Args:
        calibration: `[n]`, scores of held-out in-distribution images.
        fpr: the false-alarm rate, at least 1/(n + 1).

    Example:
        >>> null = np.arange(99.0)
        >>> score_threshold(null, 0.05), conformal_p_values(np.array([94.0, 94.1]), null)
        (94.0, array([0.06, 0.05]))
    """
    check_false_alarm_rate(fpr, calibration)
    n = len(calibration)
    # Counted on the p-values themselves: fpr · (n + 1) may fall short of an integer by a rounding error.
    rank = np.count_nonzero(np.arange(1, n + 1) / (n + 1) <= fpr)
    return float(np.partition(calibration, n - rank)[n - rank])


@dataclasses.dataclass(frozen=True, repr=False)
class Calibration:
    """In-distribution scores to compare with.

    Attributes:
        image_scores: by group size, sorted scores of images in requests of that size. A statistic of scope "image"
            has only size 1.
        batch_scores: by group size, sorted mean scores of whole requests; empty for a statistic of scope "image", for
            which single scores suffice.
        within: scores of single images by cluster, if p-values are computed within clusters.

    Example:
        >>> calibration = Calibration({1: np.arange(9.0), 4: np.arange(8.0)}, {1: np.arange(9.0), 4: np.arange(2.0)})
        >>> calibration.group_size(10), len(calibration.null_of_images(10)), len(calibration.null_of_batches(10))
        (4, 8, 2)
        >>> calibration
        <Calibration: 9 scores, false-alarm rates from 0.1; also for requests of 4>
    """

    image_scores: Mapping[int, np.ndarray]
    batch_scores: Mapping[int, np.ndarray]
    within: "Mondrian | None" = None

    @property
    def fewest(self) -> int:
        """The minimum number of scores that a single image is compared with: those of the smallest cluster, or all."""
        return len(self.null_of_images(1)) if self.within is None else self.within.least

    def group_size(self, count: int) -> int:
        """The largest calibrated size that a request of `count` images reaches.

        A batch statistic of fewer images is noisier, so that the comparison errs towards no alarm.
        """
        return max(size for size in self.image_scores if size <= count)

    def null_of_images(self, count: int) -> np.ndarray:
        """Scores to compare the images of a request with."""
        return self.image_scores[self.group_size(count)]

    def null_of_batches(self, count: int) -> np.ndarray:
        """Mean scores to compare the mean score of a request with."""
        return self.batch_scores[self.group_size(count)]

    def __str__(self) -> str:
        count = len(self.image_scores[1])
        others = sorted(size for size in self.image_scores if size > 1)
        text = f"{count} scores, false-alarm rates from {1 / (self.fewest + 1):.2g}"
        text += "" if self.within is None else f" in each of {self.within}"
        return text + (f"; also for requests of {', '.join(map(str, others))}" if others else "")

    def __repr__(self) -> str:
        return f"<Calibration: {self}>"

    def _repr_html_(self) -> str:
        scores = self.image_scores[1]
        facts = {
            "scores": str(len(scores)),
            "within": "" if self.within is None else str(self.within),
            "false-alarm rates": f"from {1 / (self.fewest + 1):.2g}",
            "median score": f"{np.median(scores):.4g}",
        }
        for fpr in (0.05, 0.01):
            if fpr >= 1 / (len(scores) + 1) and self.within is None:
                facts[f"alarm at {100 * fpr:g} %"] = f"above {score_threshold(scores, fpr):.4g}"
        sizes = sorted(self.image_scores)
        if len(sizes) > 1:
            facts["sizes of requests"] = ", ".join(map(str, sizes))
        return card("Calibration", facts)


def highest(calibrations: Sequence[Calibration]) -> Calibration:
    """One calibration that is valid for each of several with equally many scores: it gives their largest p-value.

    `p = max_k (1 + #{null_k ≥ s})/(n + 1)` is the p-value among the elementwise maxima of the sorted nulls: the j-th
    largest of them is at least s if and only if one of the nulls has j scores of at least s.

    Example:
        >>> one = Calibration({1: np.array([1.0, 2.0, 3.0])}, {})
        >>> other = Calibration({1: np.array([0.0, 2.5, 2.5])}, {})
        >>> highest([one, other]).null_of_images(1)
        array([1. , 2.5, 3. ])
    """

    def merged(kind: str) -> dict[int, np.ndarray]:
        found = [getattr(one, kind) for one in calibrations]
        return {size: np.max([null[size] for null in found], axis=0) for size in found[0]}

    return Calibration(merged("image_scores"), merged("batch_scores"))


def calibrate(
    statistic: Statistic | Any,
    images: np.ndarray,
    *,
    group_sizes: tuple[int, ...] | None = None,
    most_groups: int = 50,
    progress: bool | None = None,
) -> Calibration:
    """Scores held-out images in requests of several sizes.

    Images are divided into disjoint groups: each group is one request. A statistic of scope "image" is scored once.

    Args:
        statistic: fitted; anything with a `scope` and a method `score(images)`.
        images: held-out in-distribution images, uint8.
        group_sizes: Defaults to 1, 2, 4, … 64, as long as there are two groups of that size.
        most_groups: maximum number of groups per size, which limits the time a batch statistic takes.
        progress: show a bar, on a terminal or in a notebook. Defaults to one after two seconds.

    Example:
        >>> statistic = tfbnood.statistics.get("pixel_pca").fit(None, x.train)
        >>> calibrate(statistic, x.calibration).null_of_images(1).shape
        (300,)
    """
    sizes = group_sizes or tuple(2**power for power in range(7))
    sizes = tuple(size for size in sizes if 2 * size <= len(images))
    if 1 not in sizes:
        raise StatisticError(
            "calibration needs at least 2 held-out images and the group size 1 among group_sizes. "
            f"Received: {len(images)} images, group_sizes={group_sizes}"
        )
    if statistic.scope == "image":
        scores = statistic.score(images, progress=progress)
        return Calibration({1: np.sort(scores)}, {})

    if hasattr(statistic, "group_null"):  # One pass for all groups, if the statistic can.
        null = statistic.group_null(images, sizes)
        return Calibration(null, null)

    random = np.random.RandomState(0)
    image_scores, batch_scores = {}, {}
    for size in sizes:
        order = random.permutation(len(images))
        # Twice as many single images: a threshold of 1 % needs at least 99 scores.
        count = min(len(images) // size, most_groups * (2 if size == 1 else 1))
        groups = [
            statistic.score(images[order[size * index : size * (index + 1)]], progress=False)
            for index in bar(
                range(count),
                f"calibrating requests of {size}",
                unit="request",
                progress=progress,
            )
        ]
        image_scores[size] = np.sort(np.concatenate(groups))
        batch_scores[size] = np.sort([group.mean() for group in groups])
    return Calibration(image_scores, batch_scores)
