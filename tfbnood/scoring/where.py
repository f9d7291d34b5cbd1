"""Where in an image its moments come from: the contribution of each place to a distance of batch-norm moments."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood.protocols import Likelihood
from tfbnood.scoring.moments import GRIDS, _cells
from tfbnood.scoring.rules import ruled, untraced

__all__ = ["MapColumns", "map_columns", "moment_places", "smooth", "standardize", "surroundings"]

# Shares of an image's side, both chosen on pieces of garments in garments (tools/research/where.py).
_SMOOTHING = 0.12
_SURROUNDINGS = 0.07


@dataclasses.dataclass(frozen=True)
class MapColumns:
    """Which columns of the moments belong to a map.

    Attributes:
        start: the first of them; cells follow one another, means before log variances.
        cells: which places are in which cell, 0 or 1 `[cells, height · width]`.
        channels: columns per cell and moment.
    """

    start: int
    cells: np.ndarray
    channels: int

    @property
    def stop(self) -> int:
        return self.start + 2 * len(self.cells) * self.channels


def map_columns(model: Any, image_shape: tuple[int, ...], grid: int) -> list[MapColumns]:
    """The columns of `image_moments` with that grid that belong to each map of `image_maps`.

    Vectors and sequences have columns too, but no places in the image.
    """
    found: list[MapColumns] = []
    start = 0

    def note(layer, inputs):
        nonlocal start
        rank = len(inputs.shape)
        channels = inputs.shape[layer.axis]
        sides = [
            side for axis, side in enumerate(inputs.shape) if axis not in (0, layer.axis % rank)
        ]
        cells = _cells(sides) if grid == GRIDS[-1] else None
        if cells is None:
            cells = np.ones((1, int(np.prod(sides))))
        if rank == 4:
            found.append(MapColumns(start, cells, channels))
        start += len(cells) * channels * (1 if rank == 2 else 2)
        return tf.zeros((), inputs.dtype), tf.ones((), inputs.dtype)

    method = model.log_prob if isinstance(model, Likelihood) else model.features
    with ruled(model, note):
        untraced(method)(tf.zeros((1, *image_shape), tf.uint8), training=False)
    return found


def moment_places(
    residuals: tf.Tensor,
    moments: tf.Tensor,
    maps: tuple[tf.Tensor, ...],
    columns: list[MapColumns],
    *,
    mean: Any,
    scale: Any,
) -> Iterator[tf.Tensor]:
    """Contributions of places to the squared length of residuals, `[n, height, width]`: means, then variances, by map.

    Let `t = (moments − mean)/scale` and r its part outside a subspace. r is orthogonal to the rest, so that
    `‖r‖² = Σ_j r_j·t_j`, and each t_j is an average over places. For a channel's mean it is that of
    `(x_p − mean_j)/scale_j`. For the logarithm of its variance it is that of `κ·(q_p − 1)/scale_j`: q_p is the squared
    deviation from the image's own mean in units of the usual variance, `(x_p − m)²/e^mean_j`, and `κ = log ρ/(ρ − 1)`
    with ρ the average of q. Summed over the places of all maps, and with the columns that have no places, this is
    `‖r‖²` again, unless values were clipped.

    Args:
        residuals: `[n, f]`, r.
        moments: `[n, f]`.
        maps: in units of the moving moments, `[n, height, width, channels]` each.
        columns: of the maps.
        mean: `[f]`.
        scale: `[f]`.
    """
    for values, part in zip(maps, columns, strict=True):
        shape = (-1, len(part.cells), 2, part.channels)
        pulls, own, usual = (
            tf.reshape(one[..., part.start : part.stop], shape)
            for one in (residuals / scale, moments, mean)
        )
        height, width = values.shape[1:3]
        inside = tf.constant(part.cells, tf.float32)
        sizes = tf.reduce_sum(inside, axis=1)[:, None]
        flat = tf.reshape(values, (-1, height * width, part.channels))

        by_mean = _by_place(flat, pulls[:, :, 0] / sizes, inside)
        by_mean -= _by_cell(pulls[:, :, 0] * usual[:, :, 0] / sizes, inside)

        centres = own[:, :, 0]
        if len(part.cells) > 1:  # One cell broadcasts as it is.
            centres = tf.einsum("nkc,kp->npc", centres, inside)
        squares = tf.square(flat - centres)
        log_ratio = own[:, :, 1] - usual[:, :, 1]
        excess = tf.math.expm1(log_ratio)
        # log ρ/(ρ − 1) is 1 at ρ = 1, where it cannot be computed.
        slope = tf.where(
            tf.abs(excess) > 1e-4, log_ratio / tf.where(excess == 0, 1.0, excess), 1 - excess / 2
        )
        weight = pulls[:, :, 1] * slope / sizes
        units = tf.exp(-usual[:, :, 1])
        # The ε in a variance has no place: every place gets the same share of it.
        average = units * tf.matmul(inside, squares) / sizes
        by_variance = _by_place(squares, weight * units, inside)
        by_variance += _by_cell(weight * (excess - average), inside)
        for one in (by_mean, by_variance):
            yield tf.reshape(one, (-1, height, width))


def _by_place(values: tf.Tensor, weights: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
    """Sums over channels of values `[n, p, c]` with the weights `[n, k, c]` of each place's cell, `[n, p]`."""
    # A product with all cells, of which one counts: separate weights for every place would take another copy.
    found = tf.matmul(values, weights, transpose_b=True)
    return tf.reduce_sum(found * tf.transpose(inside), axis=2)


def _by_cell(values: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
    """Sums over channels of values `[n, k, c]` at each place of their cell, `[n, p]`."""
    return tf.matmul(tf.reduce_sum(values, axis=2), inside)


def standardize(maps: tf.Tensor) -> tf.Tensor:
    """Maps `[n, height, width]` minus their mean, in units of their standard deviation; 0 if all places are equal."""
    centred = maps - tf.reduce_mean(maps, axis=[1, 2], keepdims=True)
    scale = tf.sqrt(tf.reduce_mean(tf.square(centred), axis=[1, 2], keepdims=True))
    return tf.math.divide_no_nan(centred, scale)


def smooth(maps: tf.Tensor) -> tf.Tensor:
    """Maps `[n, height, width]` after a Gaussian of an eighth of the side, with zeros beyond the edges."""
    rows, columns = (_gaussian(side, _SMOOTHING, fill=False) for side in maps.shape[1:3])
    return tf.einsum("hy,nyx,wx->nhw", rows, maps, columns)


def surroundings(images: tf.Tensor) -> tf.Tensor:
    """Images `[n, height, width, channels]` after a Gaussian: each place as its surroundings suggest."""
    rows, columns = (_gaussian(side, _SURROUNDINGS, fill=True) for side in images.shape[1:3])
    return tf.einsum("hy,nyxc,wx->nhwc", rows, images, columns)


def _gaussian(side: int, share: float, *, fill: bool) -> np.ndarray:
    """Weights `[side, side]` of every place for each; with `fill` those inside the image have a sum of 1."""
    apart = np.arange(side)[:, None] - np.arange(side)
    weights = np.exp(-0.5 * np.square(apart / (share * side)))
    total = weights.sum(axis=1, keepdims=True)
    return (weights / (total if fill else total.max())).astype(np.float32)
