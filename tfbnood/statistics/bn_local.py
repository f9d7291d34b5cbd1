"""Deviations place by place in the maps before batch normalisation: small defects, and where they are."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.progress import bar
from tfbnood._core.sampling import sample_of
from tfbnood.errors import StatisticError
from tfbnood.scoring.compiled import CHUNK, compile_rows
from tfbnood.scoring.evidence import Evidence, gather
from tfbnood.statistics.base import EvidenceStatistic
from tfbnood.statistics.bn_norm import MomentStatistic

__all__ = ["BnLocal"]

# Guards against channels that hardly vary, in units of the moving deviation.
_LEAST_SCALE = 0.1
_LEAST_USUAL = 1e-3


class BnLocal(MomentStatistic, EvidenceStatistic):
    """The largest local deviation of an image; `bn_moments` only sees what covers a good part of it.

    At every place and channel before a batch normalisation, the squared deviation from the mean of the reference images
    there, in units of their deviation, averaged over channels; in units of what is usual at that place; averaged over
    layers. Score: the maximum over the places of this map. The map itself, `maps(images)`, shows where.

    Reference images are split in two: means and deviations come from one half, and what is usual from the other.

    Args:
        layers: range of maps, as shares of the network's depth. Defaults to the middle third: earlier layers only see
            texture, later ones are too coarse.
        places: True compares with the same place of the reference images, for pictures taken in the same way. False
            compares with all places, for objects anywhere in the picture.
        reference_images: maximum number of images to fit it to. Defaults to 1,000.
        seed: of the choice of images.

    Example:
        >>> statistic = tfbnood.statistics.get("bn_local").fit(model, x.train)
        >>> statistic.maps(x.test[:5]).shape, statistic.score(x.test[:5]).shape
        ((5, 8, 8), (5,))

    Reference: PaDiM (Defard et al. 2020), arXiv:2011.08785, for a Gaussian at every place.
    """

    name = "bn_local"
    need = "maps"
    one_sided = 1.0
    large = ("mean_", "scale_", "usual_mean_", "usual_scale_")
    minimum_reference = 8

    def __init__(
        self,
        *,
        layers: tuple[float, float] = (1 / 3, 2 / 3),
        places: bool = True,
        reference_images: int = 1000,
        seed: int = 0,
    ):
        first, last = layers
        if not 0 <= first < last <= 1:
            raise StatisticError(
                f"layers must be (first, last) with 0 ≤ first < last ≤ 1. Received: layers={layers}"
            )
        self.layers = tuple(layers)
        self.places = places
        self.reference_images = reference_images
        self.seed = seed

    def _fit(self, model: Any, reference: np.ndarray) -> None:
        self._restore(model)
        some = sample_of(reference, self.reference_images, self.seed)
        half = len(some) // 2
        mean, variance = self._compute_moments(self._choose_maps, some[:half])
        self.mean_ = mean.astype(np.float16)
        self.scale_ = np.maximum(np.sqrt(variance), _LEAST_SCALE).astype(np.float16)
        mean, variance = self._compute_moments(self._compute_deviations, some[half:])
        self.usual_mean_ = mean.astype(np.float32)
        self.usual_scale_ = np.maximum(np.sqrt(variance), _LEAST_USUAL).astype(np.float32)
        # Compiled before these were fitted.
        self._variables.clear()

    def _fitted_names(self) -> tuple[str, ...]:
        return self.large

    def tensor_score(self, evidence: Evidence) -> tf.Tensor:
        return tf.reduce_max(self.tensor_map(evidence), axis=[1, 2])

    def tensor_map(self, evidence: Evidence) -> tf.Tensor:
        """Deviations by place in units of what is usual, `[n, height, width]` of the largest map."""
        found = self._compute_deviations(evidence)
        sides = max((one.shape[1:3] for one in found), key=lambda shape: shape[0] * shape[1])
        total = tf.zeros(())
        means, scales = (self._split(name, found) for name in ("usual_mean_", "usual_scale_"))
        for one, mean, scale in zip(found, means, scales, strict=True):
            total += tf.image.resize((one - mean) / scale, sides)
        return total[..., 0] / len(found)

    def maps(self, images: np.ndarray, *, progress: bool | None = None) -> np.ndarray:
        """The map of every checked image, enlarged to its size, float32 `[n, height, width]`."""
        self.prepare()
        sides = self.image_shape_[:2]

        def enlarged(batch):
            found = self.tensor_map(gather(self._model, self.need, batch))
            return tf.image.resize(found[..., None], sides)[..., 0]

        return compile_rows(enlarged, self.image_shape_)(images, f"maps of {self.name}", progress)

    def _choose_maps(self, evidence: Evidence) -> list[tf.Tensor]:
        """The maps of the chosen layers."""
        count = len(evidence.maps)
        if count == 0:
            raise StatisticError(
                "bn_local needs batch normalisations of maps [n, height, width, channels]. "
                "Received: a model without any"
            )
        first, last = (round(share * count) for share in self.layers)
        return list(evidence.maps[min(first, count - 1) : max(last, min(first, count - 1) + 1)])

    def _compute_deviations(self, evidence: Evidence) -> list[tf.Tensor]:
        """Squared deviations averaged over channels, `[n, height, width, 1]` by layer."""
        found = self._choose_maps(evidence)
        means, scales = (self._split(name, found) for name in ("mean_", "scale_"))
        return [
            # Clipped: one wild channel must not drown the others.
            tf.reduce_mean(
                tf.square(tf.clip_by_value((one - mean) / scale, -10.0, 10.0)),
                axis=3,
                keepdims=True,
            )
            for one, mean, scale in zip(found, means, scales, strict=True)
        ]

    def _split(self, name: str, maps: list[tf.Tensor]) -> list[tf.Tensor]:
        """A fitted vector as one array for each map."""
        shapes = [_shape(one, self.places) for one in maps]
        parts = tf.split(self._large(name), [int(np.prod(shape)) for shape in shapes])
        return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]

    def _compute_moments(self, maps_of: Any, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of every value of maps over images, or over images and places, as flat vectors."""

        def sums(batch):
            found = maps_of(gather(self._model, self.need, batch))
            powers = [tf.stack([one, tf.square(one)]) for one in found]
            if not self.places:
                powers = [tf.reduce_mean(one, axis=[2, 3]) for one in powers]
            return tf.concat([tf.reshape(tf.reduce_sum(one, 1), (2, -1)) for one in powers], axis=1)

        images_spec = tf.TensorSpec((None, *self.image_shape_), tf.uint8)
        compiled = tf.function(sums, input_signature=[images_spec], autograph=False)
        total = np.zeros(())
        for start in bar(range(0, len(images), CHUNK), f"{self.name} of reference images"):
            total = total + compiled(images[start : start + CHUNK]).numpy().astype(np.float64)
        mean, square = total / len(images)
        return mean, np.maximum(square - np.square(mean), 0)


def _shape(one: tf.Tensor, places: bool) -> tuple[int, ...]:
    return tuple(one.shape[1:]) if places else (one.shape[3],)
