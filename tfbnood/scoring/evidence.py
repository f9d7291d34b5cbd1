"""What one evaluation-mode pass tells of a batch of images, and statistics that are computed from that alone.

Such statistics are written in TensorFlow operations from images to scores: several of them share one pass, and a
detector that is exported takes them along as they are.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from tfbnood._core.batching import map_batches
from tfbnood.scoring.conditional import frozen_log_prob
from tfbnood.scoring.moments import image_moments
from tfbnood.statistics.base import Statistic

__all__ = ["NEEDS", "Evidence", "EvidenceStatistic", "Need", "gatherer", "scores_in_one_pass"]

Need = Literal["pixels", "log_prob", "moments"]
# Each has what those before it have.
NEEDS: tuple[Need, ...] = ("pixels", "log_prob", "moments")


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A batch of images and what the model makes of each.

    Attributes:
        images: float32 `[n, height, width, channels]` in 0–255.
        log_prob: nats `[n]`, or None where nobody asked for them.
        moments: each image's own moments by grid, as of `tfbnood.moments.image_moments`, or None.
    """

    images: tf.Tensor
    log_prob: Any = None
    moments: Any = None


def gatherer(model: Any, need: Need) -> Callable[[Any], Evidence]:
    """Returns a function from a batch of images to its evidence, in one pass at most."""
    log_prob = frozen_log_prob(model) if need == "log_prob" else None
    moments = image_moments(model) if need == "moments" else None

    def gather(images: Any) -> Evidence:
        images = tf.convert_to_tensor(images)
        pixels = tf.cast(images, tf.float32)
        if moments is not None:
            return Evidence(pixels, *moments(images))
        if log_prob is not None:
            return Evidence(pixels, log_prob(images, False))
        return Evidence(pixels)

    return gather


class EvidenceStatistic(Statistic):
    """A statistic of single images in TensorFlow operations. Subclasses set `need` and implement `tensor_score`.

    Attributes:
        need: what it takes of an `Evidence`.
        one_sided: what its score counts when `ensemble` adds up members of which only high values mean
            out-of-distribution; 0 for others: a likelihood, or a distance of pixels, is as often too low as too high.
        large: names of fitted arrays that are large; read with `_large`, they go into an export once, however many
            signatures read them.
    """

    scope = "image"
    need: Need
    one_sided: ClassVar[float] = 0.0
    large: ClassVar[tuple[str, ...]] = ()

    @property
    def variables(self) -> list[tf.Variable]:
        """The large arrays."""
        return [self._variable(name) for name in self.large]

    def _large(self, name: str) -> tf.Tensor:
        """A large array, as float32."""
        return tf.cast(self._variable(name), tf.float32)

    def _variable(self, name: str) -> tf.Variable:
        if name not in self._variables:
            with tf.init_scope():  # Also when first read while a graph is traced.
                self._variables[name] = tf.Variable(getattr(self, name), trainable=False)
        return self._variables[name]

    @abc.abstractmethod
    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        """Scores a batch, float32 `[n]`; every row on its own."""

    def tensor_columns(self, evidence: Evidence) -> tf.Tensor:
        """What `ensemble` takes of it, `[n, k]`: the score, and further values where it has more to tell."""
        return self.tensor_score(evidence)[:, None]

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)

    def _restore(self, model: Any) -> None:
        self._model = model  # The compiled function knows it only for as long as somebody holds it.
        self._gather = gatherer(model, self.need)
        self._variables: dict[str, tf.Variable] = {}

    def _score(self, images: np.ndarray) -> np.ndarray:
        progress = getattr(self, "_progress", False)
        return scores_in_one_pass([self], images, progress=progress)[:, 0]


def scores_in_one_pass(
    statistics: Sequence[EvidenceStatistic], images: np.ndarray, *, progress: bool = False
) -> np.ndarray:
    """Scores of statistics that were fitted to one model, float64 `[n, statistics]`."""
    widest = max(statistics, key=lambda one: NEEDS.index(one.need))

    def scores(batch):
        evidence = widest._gather(batch)
        return tf.stack([one.tensor_score(evidence) for one in statistics], axis=1)

    description = ", ".join(one.name for one in statistics)
    return map_batches(scores, images, description=description, progress=progress).astype(
        np.float64
    )
