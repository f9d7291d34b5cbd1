"""Clusters of images without labels: k-means on the results of one pass of the model."""

from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf

from tfbnood._core.checks import check_integer
from tfbnood._core.sampling import sample_of
from tfbnood.errors import DataError, StatisticError
from tfbnood.protocols import FeatureExtractor
from tfbnood.scoring.compiled import compile_rows
from tfbnood.scoring.evidence import Evidence, gather
from tfbnood.statistics.base import EvidenceStatistic, Statistic
from tfbnood.statistics.bn_moments import BnMoments

__all__ = ["Clusters", "check_count", "find_clusters"]

Kind = Literal["moments", "features", "pixels"]
_DIRECTIONS = 20  # whitened principal components used for distances
_SIDE = 16  # maximum side of images whose pixels are compared
_IMAGES = 4000  # maximum images to find the clusters in


class Clusters:
    """The centres of clusters, and the assignment of images to the nearest one.

    Images are compared by their batch-norm moments in the subspace of `bn_moments`, if the statistic has that member;
    else by a network's features, scaled to unit length; else by the pixels of images shrunk to 16 by 16. Distances are
    Euclidean, in 20 whitened principal components.

    Args:
        kind: what is compared: "moments", "features" or "pixels".
        mean: `[f]`.
        axes: `[f, d]`, from centred rows to whitened components.
        centres: `[k, d]`.

    Example:
        >>> clusters = Clusters.fit(detector.statistic, x.train, 3)
        >>> clusters
        <Clusters: 3 by pixels>
        >>> np.bincount(clusters.assign(detector.statistic, x.test)).sum()
        np.int64(397)
    """

    def __init__(self, kind: Kind, mean: np.ndarray, axes: np.ndarray, centres: np.ndarray):
        arrays = [np.asarray(one, np.float32) for one in (mean, axes, centres)]
        self.kind, (self.mean, self.axes, self.centres) = kind, arrays
        shapes = (self.axes.shape[:1], self.centres.shape[1:])
        if (
            kind not in get_args(Kind)
            or [one.ndim for one in arrays] != [1, 2, 2]
            or shapes != (self.mean.shape, self.axes.shape[1:])
            or not all(np.isfinite(one).all() for one in arrays)
            or not len(self.centres)
        ):
            raise DataError(
                "clusters must have a kind, and finite mean [f], axes [f, d] and centres [k, d]. "
                f"Received: {str(kind)[:20]!r} and shapes {', '.join(str(one.shape) for one in arrays)}"
            )

    @classmethod
    def fit(
        cls, statistic: Statistic, images: np.ndarray, count: int, *, seed: int = 0
    ) -> "Clusters":
        """Finds clusters in reference images, by scikit-learn's `PCA` and `KMeans`.

        Args:
            statistic: fitted, of scope "image".
            images: checked, in-distribution; preferably not the calibration images.
            count: number of clusters.
            seed: of the choice of at most 4,000 images, and of both solvers.
        """
        from sklearn.cluster import KMeans
        from sklearn.decomposition import PCA

        check_count(count)
        if len(images) < 10 * count:
            raise DataError(
                f"clusters must be at most a tenth of the reference images. Received: clusters={count}, "
                f"{len(images)} images"
            )
        kind = _choose_kind(statistic)
        rows_of = compile_rows(
            lambda batch: _rows(kind, statistic, _gather(statistic, batch)),
            statistic.image_shape_,
        )
        rows = rows_of(sample_of(images, _IMAGES, seed), "clusters of reference images")
        directions = min(_DIRECTIONS, rows.shape[1], len(rows) - 1)
        pca = PCA(directions, whiten=True, svd_solver="full", random_state=seed).fit(rows)
        # Guard against directions in which all images are equal.
        deviations = np.maximum(np.sqrt(pca.explained_variance_), 1e-6)
        axes = (pca.components_ / deviations[:, None]).T
        means = KMeans(count, n_init=3, random_state=seed).fit((rows - pca.mean_) @ axes)
        return cls(kind, pca.mean_, axes, means.cluster_centers_)

    def __len__(self) -> int:
        return len(self.centres)

    def __repr__(self) -> str:
        return f"<Clusters: {len(self)} by {self.kind}>"

    def tensor_assign(self, statistic: Statistic, evidence: Evidence) -> tf.Tensor:
        """The nearest centre of every row, int32 `[n]`."""
        points = tf.matmul(_rows(self.kind, statistic, evidence) - self.mean, self.axes)
        # ‖p − c‖² less ‖p‖², which is the same for all centres.
        lengths = tf.reduce_sum(tf.square(self.centres), axis=1)
        distances = lengths - 2 * tf.matmul(points, self.centres, transpose_b=True)
        return tf.argmin(distances, axis=1, output_type=tf.int32)

    def assign(self, statistic: Statistic, images: np.ndarray) -> np.ndarray:
        """The same for checked images, in a separate pass."""
        assign = compile_rows(
            lambda batch: self.tensor_assign(statistic, _gather(statistic, batch)),
            statistic.image_shape_,
        )
        return assign(images, "clusters", progress=False)


def find_clusters(
    statistic: Statistic, images: np.ndarray | None, count: int | None
) -> Clusters | None:
    """Fits `Clusters` to reference images, if clusters are requested.

    Raises:
        DataError: if there are no reference images.
    """
    if count is None:
        return None
    if images is None:
        raise DataError(
            "clusters need reference images, which a saved detector does not keep: "
            f"calibrate(…, clusters={count}, reference=images). Received: none"
        )
    return Clusters.fit(statistic, images, count)


def check_count(count: Any) -> None:
    """Refuses an invalid number of clusters; None means no clusters."""
    if count is not None:
        check_integer("clusters", count, least=2)


def _choose_kind(statistic: Statistic) -> Kind:
    """What a statistic's own pass offers to compare images by."""
    if statistic.scope != "image":
        raise StatisticError(
            'clusters need a statistic of scope "image": scores of a request depend on each other. '
            f"Received: {statistic.name}"
        )
    if _find_moments(statistic) is not None:
        return "moments"
    if not isinstance(statistic, EvidenceStatistic) or statistic.need == "pixels":
        return "pixels"
    return "features" if isinstance(statistic._model, FeatureExtractor) else "pixels"


def _find_moments(statistic: Statistic) -> BnMoments | None:
    """The first `bn_moments` of a statistic or among its members."""
    members = getattr(statistic, "_members", [statistic])
    return next((one for one in members if isinstance(one, BnMoments)), None)


def _gather(statistic: Statistic, images: tf.Tensor) -> Evidence:
    if isinstance(statistic, EvidenceStatistic):
        return gather(statistic._model, statistic.need, images)
    return gather(None, "pixels", images)


def _rows(kind: Kind, statistic: Statistic, evidence: Evidence) -> tf.Tensor:
    if kind == "moments":
        moments = _find_moments(statistic)
        assert moments is not None
        return moments.tensor_coordinates(evidence)
    if kind == "features":
        return tf.math.l2_normalize(evidence.features, axis=1)
    height, width, channels = evidence.images.shape[1:]
    sides = (min(_SIDE, height), min(_SIDE, width))
    small = tf.image.resize(evidence.images, sides, "area") / 255
    return tf.reshape(small, (-1, sides[0] * sides[1] * channels))
