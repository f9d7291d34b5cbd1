"""Where an image is unusual to a statistic: a heat map for every statistic of single images."""

import dataclasses
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.batching import map_batches
from tfbnood._core.images import as_images
from tfbnood._core.progress import bar, showing
from tfbnood.errors import NotFittedError, StatisticError
from tfbnood.protocols import Reconstructor
from tfbnood.scoring.evidence import Evidence, Need, gather, widest
from tfbnood.scoring.where import (
    map_columns,
    moment_places,
    smooth,
    standardize,
    surroundings,
)
from tfbnood.statistics.base import EvidenceStatistic, Statistic
from tfbnood.statistics.bn_local import BnLocal
from tfbnood.statistics.bn_moments import BnMoments
from tfbnood.statistics.ensemble import Ensemble
from tfbnood.statistics.likelihood import Complexity, LogProb, TPerm
from tfbnood.statistics.pixels import PixelKnn, PixelPca
from tfbnood.statistics.reconstruction import Reconstruction

__all__ = ["explain"]

# Images per pass: a gradient holds every map of a network.
_CHUNK = 8
# The weight of a gradient beside the places of the moments; chosen on pieces of garments (tools/research/where.py).
_GRADIENT = 0.5
# Occlusion: windows along a side, and a window's share of it.
_WINDOWS = 8
_WINDOW = 1 / 3

# Their scores have parts without a gradient, such as a PNG's size: the likelihood gives their maps.
_LIKELIHOODS = (LogProb, Complexity, TPerm)
_PIXELS = (PixelPca, PixelKnn)
_OWN_MAPS = (BnMoments, BnLocal, *_PIXELS)


def explain(statistic: Statistic, images: Any, *, progress: bool | None = None) -> np.ndarray:
    """Shows where images are unusual: heat maps, float32 `[n, height, width]`, higher where the score comes from.

    A map compares the places of one image with each other: its mean is 0 and its standard deviation 1 (all 0 if the
    places are equal), so that even an ordinary image has a highest place. Scores and p-values show *whether* an image
    is unusual.

    What is drawn, by statistic:

    - `bn_moments`: the exact contribution of each place to the score (`tfbnood.scoring.where.moment_places`),
      standardised by layer, separately for means and variances, and summed; plus half of the gradient's map, below.
    - `bn_local`: its own map.
    - `pixel_pca`, `pixel_knn`: the squared gradient: the distance of each pixel from the subspace or the neighbours.
    - `log_prob`, `complexity`, `t_perm`: the squared error of the reconstruction if the model has one, and the
      gradient's map of −log p otherwise. The PNG's size in `complexity` and the rank in `t_perm` are not explained.
    - `reconstruction`: its squared error.
    - `ensemble`: the sum of its members' maps. Members that have only a gradient's map, which is noisier, are left out
      if there are others: `features`, `pretext`, and `log_prob` of a model without reconstructions.
    - Other statistics in TensorFlow operations: the gradient's map, `max(0, ∂score/∂x · (x − x̂))`, where x̂ is the
      model's reconstruction, or a blurred image.
    - Any other, including your own: occlusion, the drop of the score when a window is filled with the mean around it.
      64 scores per image.

    Maps are smoothed by a Gaussian of an eighth of the side. An image gives the same map whatever its companions, and
    no variable changes.

    Args:
        statistic: a fitted one of scope "image".
        images: `[n, height, width, channels]` in 0–255.
        progress: show a bar on a terminal.

    Raises:
        StatisticError: for a statistic of scope "batch", whose score is that of a group, or a model that was trained
            further since the fit.

    Example:
        >>> statistic = tfbnood.statistics.get("pixel_pca", components=20).fit(None, x.train)
        >>> spoiled = x.test[:5].copy()
        >>> spoiled[:, 1:3, 5:7] = 255 - spoiled[:, 1:3, 5:7]
        >>> explain(statistic, spoiled).shape
        (5, 8, 8)

    Reference: for gradients times differences, A. Shrikumar et al. 2016, arXiv:1605.01713; for occlusion, M. Zeiler and
    R. Fergus 2013, arXiv:1311.2901.
    """
    if not hasattr(statistic, "image_shape_"):
        raise NotFittedError(
            f"call fit() with a model and reference images before explaining {statistic.name}"
        )
    if statistic.scope != "image":
        raise StatisticError(
            'explain needs a statistic of scope "image": that of a whole batch is not a sum over its images. '
            f"Received: {statistic.name}, whose scope is {statistic.scope!r}"
        )
    images = as_images(images, statistic.image_shape_)
    with showing(progress):
        if isinstance(statistic, EvidenceStatistic):
            statistic.check_unchanged()
            return _explain_evidence(statistic, images)
        if isinstance(statistic, Reconstruction):
            errors = np.square(statistic._reconstruct(images) - images.astype(np.float32)).sum(
                axis=3
            )
            return standardize(smooth(errors)).numpy()
        return _occlude(statistic, images)


def _explain_evidence(statistic: EvidenceStatistic, images: np.ndarray) -> np.ndarray:
    model = getattr(statistic._model, "unfrozen", statistic._model)
    reconstructs = isinstance(model, Reconstructor)
    maps_of = _compiled(statistic, reconstructs)
    if maps_of is None:
        return _occlude(statistic, images)

    def maps(batch):
        pixels = tf.cast(batch, tf.float32)
        return maps_of(pixels, model.reconstruct(batch) if reconstructs else surroundings(pixels))

    description = f"where, by {statistic.name}"
    return map_batches(maps, images, batch_size=_CHUNK, complete=False, description=description)


# By statistic: what a fit renews, and the function compiled for it.
_known: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _compiled(statistic: EvidenceStatistic, reconstructs: bool) -> Callable | None:
    """`(images, expected) → maps`, traced once per fit; None if a score has no gradient."""
    with _lock:
        fitted, compiled = _known.get(statistic, (None, None))
        if fitted is not statistic._scorers:
            fitted, compiled = statistic._scorers, _trace(statistic, reconstructs)
            _known[statistic] = (fitted, compiled)
        return compiled


def _trace(statistic: EvidenceStatistic, reconstructs: bool) -> Callable | None:
    statistic.prepare()
    parts = _parts(statistic, reconstructs)
    columns = {
        one.grid: map_columns(one._model, one.image_shape_, one.grid)
        for one in parts
        if isinstance(one, BnMoments)
    }
    need: Need = "maps" if columns else widest(*(one.need for one in parts))
    # Weak: the function lives as long as the statistic, and must not keep it alive.
    model_of, *parts_of = map(weakref.ref, (statistic, *parts))

    def maps(pixels, expected):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(pixels)
            evidence = gather(model_of()._model, need, pixels)
            scored = [(one(), _differentiable(one(), evidence)) for one in parts_of]
        asked = _Asked(pixels, expected, evidence, reconstructs)
        found = [
            _map(one, asked, lambda score=score: _gradient(tape, score, pixels), columns)
            for one, score in scored
        ]
        return standardize(tf.add_n([standardize(smooth(one)) for one in found]))

    shape = tf.TensorSpec((None, *statistic.image_shape_), tf.float32)
    compiled = tf.function(maps, input_signature=[shape, shape], autograph=False)
    try:
        compiled.get_concrete_function()
    except _NoGradientError:
        return None
    return compiled


def _parts(statistic: EvidenceStatistic, reconstructs: bool) -> list[EvidenceStatistic]:
    """The statistics that contribute a map: of an ensemble, the members with more than a gradient, if any."""
    if not isinstance(statistic, Ensemble):
        return [statistic]
    kinds = (*_OWN_MAPS, *(_LIKELIHOODS if reconstructs else ()))
    return [one for one in statistic._members if isinstance(one, kinds)] or [statistic]


class _NoGradientError(Exception):
    """A score that is not a differentiable function of the pixels."""


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A batch of images: pixels, what the model or the surroundings would expect instead, and the evidence."""

    pixels: tf.Tensor
    expected: tf.Tensor
    evidence: Evidence
    reconstructs: bool


def _differentiable(statistic: EvidenceStatistic, evidence: Evidence) -> tf.Tensor:
    """The score, or the part of it that has a gradient."""
    if isinstance(statistic, _LIKELIHOODS):
        return -evidence.log_prob
    return statistic.tensor_score(evidence)


def _gradient(tape: tf.GradientTape, scores: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    """The gradient of every image's score by its own pixels: rows are independent."""
    gradient = tape.gradient(scores, pixels)
    if gradient is None:
        raise _NoGradientError
    # A square root has none at 0.
    return tf.where(tf.math.is_finite(gradient), gradient, 0.0)


def _map(
    statistic: Any, asked: _Asked, gradient: Callable[[], tf.Tensor], columns: dict
) -> tf.Tensor:
    """The map of one statistic, `[n, height, width]`."""
    sides = asked.pixels.shape[1:3]
    if isinstance(statistic, BnLocal):
        return _enlarge(statistic.tensor_map(asked.evidence), sides)
    difference = asked.pixels - asked.expected
    if isinstance(statistic, _LIKELIHOODS) and asked.reconstructs:
        return tf.reduce_sum(tf.square(difference), axis=3)
    if isinstance(statistic, _PIXELS):
        return tf.reduce_sum(tf.square(gradient()), axis=3)
    # How much each pixel raises the score above the expected one, to first order.
    changes = tf.nn.relu(tf.reduce_sum(gradient() * difference, axis=3))
    if not isinstance(statistic, BnMoments) or not columns[statistic.grid]:
        return changes
    by_layer = moment_places(
        statistic.tensor_residuals(asked.evidence),
        statistic._moments(asked.evidence),
        asked.evidence.maps,
        columns[statistic.grid],
        mean=statistic._large("mean_"),
        scale=statistic._large("scale_"),
    )
    places = tf.add_n([standardize(_enlarge(one, sides)) for one in by_layer])
    return standardize(smooth(places)) + _GRADIENT * standardize(smooth(changes))


def _enlarge(maps: tf.Tensor, sides: Any) -> tf.Tensor:
    return tf.image.resize(maps[..., None], sides)[..., 0]


def _occlude(statistic: Statistic, images: np.ndarray) -> np.ndarray:
    """How much the score falls without each place: the mean over the windows that contain it."""
    count, height, width = images.shape[:3]
    falls, covered = np.zeros((count, height, width)), np.zeros((height, width))
    scores = statistic.score(images)
    windows = [(rows, columns) for rows in _windows(height) for columns in _windows(width)]
    for rows, columns in bar(windows, f"where, by {statistic.name}", unit="window"):
        without = statistic.score(_fill(images, rows, columns), progress=False)
        falls[:, rows, columns] += (scores - without)[:, None, None]
        covered[rows, columns] += 1
    return standardize(smooth(tf.constant(falls / covered, tf.float32))).numpy()


def _windows(side: int) -> list[slice]:
    """Overlapping windows that cover a side."""
    size = max(1, round(_WINDOW * side))
    starts = np.unique(np.linspace(0, side - size, _WINDOWS).round().astype(int))
    return [slice(start, start + size) for start in starts.tolist()]


def _fill(images: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    """Images in which a window has the mean of the pixels around it."""
    around = np.zeros(images.shape[1:3], bool)
    around[max(rows.start - 1, 0) : rows.stop + 1, max(columns.start - 1, 0) : columns.stop + 1] = (
        True
    )
    around[rows, columns] = False
    filled = images.copy()
    if around.any():  # A window may be the whole image, if that is one pixel.
        filled[:, rows, columns] = np.rint(images[:, around].mean(axis=1))[:, None, None]
    return filled
