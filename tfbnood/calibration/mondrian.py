"""P-values within clusters: each image is compared with calibration images of its own cluster only.

Conformal p-values are valid on average over all images, but one kind may raise ten times as many alarms as another.
Within clusters the rate holds in each of them, and thus even if their shares change.

Reference: Vovk, Gammerman & Shafer, Algorithmic Learning in a Random World, 2005: Mondrian conformal predictors.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfbnood.calibration.certificates import (
    certified_rank,
    images_to_certify,
    smallest_certified_rate,
)
from tfbnood.calibration.clusters import Clusters
from tfbnood.calibration.conformal import (
    check_false_alarm_rate,
    conformal_p_values,
    score_threshold,
)
from tfbnood.calibration.rates import default_false_alarm_rate
from tfbnood.errors import DataError
from tfbnood.scoring.compiled import p_values

__all__ = ["Mondrian", "highest_within"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Mondrian:
    """Calibration scores by cluster.

    Attributes:
        clusters: assign images to clusters.
        nulls: by cluster, sorted scores of held-out in-distribution images.

    Example:
        >>> clusters = tfbnood.calibration.Clusters.fit(detector.statistic, x.train, 3)
        >>> scores, rows = detector.score(x.calibration), clusters.assign(detector.statistic, x.calibration)
        >>> mondrian = Mondrian.of(clusters, scores, rows)
        >>> int((mondrian.p_values(scores, rows) <= 0.1).sum()) in range(20, 31)  # of 300
        True
    """

    clusters: Clusters
    nulls: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, clusters: Clusters, scores: np.ndarray, rows: np.ndarray) -> "Mondrian":
        """Makes it from scores `[n]` of held-out images and their clusters `[n]`; no cluster may be empty."""
        nulls = tuple(np.sort(scores[rows == cluster]) for cluster in range(len(clusters)))
        if empty := sum(not len(one) for one in nulls):
            raise DataError(
                "clusters must be few enough that each has held-out images. "
                f"Received: clusters={len(clusters)}, of which {empty} have none of {len(scores)} images"
            )
        return cls(clusters, nulls)

    @property
    def least(self) -> int:
        """Images in the smallest cluster."""
        return min(len(one) for one in self.nulls)

    def __str__(self) -> str:
        return (
            f"{len(self.nulls)} clusters by {self.clusters.kind}, of at least {self.least} scores"
        )

    def __repr__(self) -> str:
        return f"<Mondrian: {self}>"

    def p_values(self, scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Conformal p-values of scores `[n]` in the clusters `[n]`."""
        found = np.ones(len(scores))
        for cluster, null in enumerate(self.nulls):
            found[rows == cluster] = conformal_p_values(scores[rows == cluster], null)
        return found

    def tensor_p_values(self, scores: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The same inside a graph, float64 `[n]`."""
        nulls = [tf.constant(null, tf.float64) for null in self.nulls]
        by_cluster = tf.stack([p_values(scores, null) for null in nulls], axis=1)
        return tf.gather(by_cluster, rows, axis=1, batch_dims=1)

    def alarm_levels(
        self, fpr: float | None = None, *, confidence: float | None = None
    ) -> tuple[np.ndarray, str]:
        """By cluster, the largest p-value that raises an alarm; and the rule in words.

        Args:
            fpr: false-alarm rate in each cluster. Defaults to `default_false_alarm_rate` of the smallest cluster.
            confidence: with which the rate holds in all clusters at once (Bonferroni), and thus in any mix of them.

        Raises:
            DataError: if the smallest cluster has too few images; the message states how many are needed.
        """
        fpr = default_false_alarm_rate(self.least) if fpr is None else fpr
        sizes = np.array([len(one) for one in self.nulls])
        where = f"in each of {len(sizes)} clusters"
        if confidence is None:
            if 0 < fpr < 1 and fpr < 1 / (self.least + 1):
                needed = int(np.ceil(sizes.sum() * (1 / fpr - 1) / self.least))
                raise DataError(
                    f"fpr must be at least 1/(n + 1) = {1 / (self.least + 1):.4g} with n={self.least} calibration "
                    f"images in the smallest of {len(sizes)} clusters; calibrate on about {needed} images instead of "
                    f"{sizes.sum()}, or use fewer clusters. Received: fpr={fpr}"
                )
            check_false_alarm_rate(fpr, self.nulls[0])
            return np.full(len(sizes), fpr), f"false-alarm rate {fpr:g} {where}"
        each = 1 - (1 - confidence) / len(sizes) if 0 < confidence < 1 else confidence
        if 0 < confidence < 1 and 0 < fpr < 1 and fpr < smallest_certified_rate(self.least, each):
            needed = int(np.ceil(sizes.sum() * images_to_certify(fpr, each) / self.least))
            raise DataError(
                f"fpr must be at least {smallest_certified_rate(self.least, each):.2g} with n={self.least} calibration "
                f"images in the smallest of {len(sizes)} clusters and confidence={confidence:g}; calibrate on about "
                f"{needed} images instead of {sizes.sum()}, or use fewer clusters. Received: fpr={fpr}"
            )
        ranks = [certified_rank(int(size), fpr, each) for size in sizes]
        rule = f"false-alarm rate at most {fpr:g} {where} with {100 * confidence:g} % confidence"
        return np.array(ranks) / (sizes + 1), rule

    def thresholds(self, levels: np.ndarray) -> np.ndarray:
        """By cluster, the score above which an alarm is raised."""
        pairs = zip(self.nulls, levels, strict=True)
        return np.array([score_threshold(null, level) for null, level in pairs])


def highest_within(several: Sequence[Mondrian]) -> Mondrian:
    """One that is valid for each of several with the same clusters: no p-value is smaller than the largest of theirs.

    With equally many scores in a cluster, these are the elementwise maxima of the sorted nulls. Otherwise the j-th
    largest of m, the fewest, is the largest of the scores above which each of the others has `p ≤ j/(m + 1)`.
    """

    def merged(nulls: Sequence[np.ndarray]) -> np.ndarray:
        fewest = min(len(null) for null in nulls)
        ranks = np.arange(1, fewest + 1)  # from the largest
        own = [ranks * (len(null) + 1) // (fewest + 1) for null in nulls]
        return np.max([null[len(null) - of] for null, of in zip(nulls, own, strict=True)], axis=0)[
            ::-1
        ]

    by_cluster = zip(*(one.nulls for one in several), strict=True)
    return Mondrian(several[0].clusters, tuple(merged(nulls) for nulls in by_cluster))
