"""Replaces the moments in a model's batch normalisations, and computes each image's own, without changing the model.

Notation: `m`, `v` are the moving moments, `m_b`, `v_b` those of the test images, and r is the ratio of mixing:
`m_r = (1−r)·m + r·m_b`, `v_r = (1−r)·(v + (m − m_r)²) + r·(v_b + (m_b − m_r)²)`, the moments of a batch of which a
share of r are test images. r = 0 is evaluation mode, r = 1 training mode.
"""

import collections
import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbnood.protocols import Likelihood
from tfbnood.scoring.frozen import once_per_model
from tfbnood.scoring.rules import Moments, along_axis, ruled, untraced

__all__ = [
    "GRIDS",
    "image_maps",
    "image_moments",
    "log_prob_with_mixed_moments",
    "moment_columns",
]

# Moments of the whole image, and of its quarters.
GRIDS = (1, 2)


@once_per_model
def log_prob_with_mixed_moments(
    model: Any, images: tf.Tensor, weights: tf.Tensor, ratio: tf.Tensor
) -> tf.Tensor:
    """Compiles `(images, weights, ratio) → [n]`: log p with moments mixed of the moving ones and these images'.

    `weights`, `[n]` with sum 1, are the images' shares in the batch's moments: 0 for rows that only fill up a short
    batch.
    """

    def mixed(layer, inputs):
        shares = tf.reshape(tf.cast(weights, inputs.dtype), [-1] + [1] * (len(inputs.shape) - 1))

        def mean_of(values):
            # Rows first: every image counts with its weight, whatever its number of pixels.
            return tf.reduce_sum(shares * _spatial_mean(layer, values), axis=0, keepdims=True)

        mean = mean_of(inputs)
        variance = mean_of(tf.square(inputs - mean))
        return _mixed(_moving(layer, inputs), (mean, variance), ratio)

    with ruled(model, mixed):
        return untraced(model.log_prob)(images, training=False)


@once_per_model
def image_moments(model: Any, images: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Compiles `images → (outputs, moments)` in evaluation mode; moments are `[n, f]` for every grid of `GRIDS`.

    Outputs are log p `[n]` of a likelihood model, and features `[n, k]` of a network.

    The moments are each image's own in every channel of every batch normalisation, in units of the moving ones:
    `(m_i − m)/√(v + ε)`, and `log((v_i + ε)/(v + ε))` where an image has more than one value per channel. With grid 1
    they are over the whole image, with grid 2 over each quarter of it. Layers come in the order of their calls, then
    cells, then means before variances, then channels.
    """
    layers: list[_LayerMoments] = []

    def moving(layer, inputs):
        layers.append(_LayerMoments.of(layer, inputs))
        return _moving(layer, inputs)

    with ruled(model, moving):
        outputs = _outputs(model, images)
    return outputs, _to_moving_units(layers)


@once_per_model
def image_maps(
    model: Any, images: tf.Tensor
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
    """Compiles `images → (outputs, moments, maps)`: what `image_moments` gives, and the maps behind it.

    Maps are the inputs of every batch normalisation with two spatial axes, place by place in units of the moving
    moments, `(x − m)/√(v + ε)`, `[n, height, width, channels]` each, in the order of the calls.
    """
    layers: list[_LayerMoments] = []
    maps: list[tf.Tensor] = []

    def moving(layer, inputs):
        layers.append(_LayerMoments.of(layer, inputs))
        if len(inputs.shape) == 4:
            mean, variance = _moving(layer, inputs)
            standard = (inputs - mean) * tf.math.rsqrt(variance + layer.epsilon)
            maps.append(_channels_last(layer, standard))
        return _moving(layer, inputs)

    with ruled(model, moving):
        outputs = _outputs(model, images)
    return outputs, _to_moving_units(layers), tuple(maps)


def moment_columns(model: Any, image_shape: tuple[int, ...]) -> list[tuple[str, str, int]]:
    """Describes the columns of `image_moments` with grid 1: layer, "mean" or "log variance", and number of channels.

    Layers come in the order of their calls. Keras lists them in another order, so that it takes a pass to find out.
    """
    columns: list[tuple[str, str, int]] = []
    calls: collections.Counter[str] = collections.Counter()

    def note(layer, inputs):
        name = (layer.path or layer.name).removeprefix(f"{model.name}/")
        calls[name] += 1
        if calls[name] > 1:
            name = f"{name}, call {calls[name]}"
        for moment in ("mean", "log variance") if len(inputs.shape) > 2 else ("mean",):
            columns.append((name, moment, inputs.shape[layer.axis]))
        return tf.zeros((), inputs.dtype), tf.ones((), inputs.dtype)

    with ruled(model, note):
        _outputs(model, tf.zeros((1, *image_shape), tf.uint8))
    return columns


def _outputs(model: Any, images: tf.Tensor) -> tf.Tensor:
    """A model's outputs in evaluation mode: log p of a likelihood model, features of a network."""
    method = model.log_prob if isinstance(model, Likelihood) else model.features
    return untraced(method)(images, training=False)


@dataclasses.dataclass(frozen=True)
class _LayerMoments:
    """A layer's raw moments of every image: few operations here, the rest for all layers at once.

    Attributes:
        mean: `[n, cells, channels]`.
        variance: the same shape; None if an image has one value per channel.
        shares: each cell's share of the pixels.
        moving: the layer's moving mean, variance and ε, `[channels]` each.
    """

    mean: tf.Tensor
    variance: tf.Tensor | None
    shares: tuple[float, ...]
    moving: tuple[tf.Tensor, tf.Tensor, np.ndarray]

    @classmethod
    def of(cls, layer: keras.layers.BatchNormalization, inputs: tf.Tensor) -> "_LayerMoments":
        values = _channels_last(layer, inputs)
        channels = values.shape[-1]
        epsilon = np.full(channels, layer.epsilon, values.dtype.as_numpy_dtype)
        moving = (
            tf.cast(layer.moving_mean, values.dtype),
            tf.cast(layer.moving_variance, values.dtype),
            epsilon,
        )
        if len(values.shape) == 2:
            return cls(values[:, None], None, (1.0,), moving)
        cells = _cells(values.shape[1:-1])
        if cells is None:
            axes = list(range(1, len(values.shape) - 1))
            mean = tf.reduce_mean(values, axes, keepdims=True)
            variance = tf.reduce_mean(tf.square(values - mean), axes)
            return cls(tf.reshape(mean, (-1, 1, channels)), variance[:, None], (1.0,), moving)
        # Matrix products: one operation for all cells, without copies of parts of the map.
        # The cells are one byte a pixel in an export, which has them for every layer.
        inside = tf.cast(tf.constant(cells, tf.bool), values.dtype)
        averaging = inside / tf.reduce_sum(inside, axis=1, keepdims=True)
        flat = tf.reshape(values, (-1, cells.shape[1], channels))
        mean = tf.matmul(averaging, flat)
        deviations = tf.square(flat - tf.matmul(inside, mean, transpose_a=True))
        shares = tuple(cells.mean(axis=1))
        return cls(mean, tf.matmul(averaging, deviations), shares, moving)


def _to_moving_units(layers: list[_LayerMoments]) -> tuple[tf.Tensor, ...]:
    """The columns by grid, computed once for all layers that have the same cells."""
    kinds: dict[tuple, list[int]] = {}
    for index, layer in enumerate(layers):
        kinds.setdefault((layer.shares, layer.variance is None), []).append(index)
    by_grid: tuple[list[tf.Tensor], ...] = tuple([] for _ in GRIDS)
    # The position of each column of the result among the computed ones: by layer, cell, moment and channel.
    order: tuple[dict[int, np.ndarray], ...] = tuple({} for _ in GRIDS)
    filled = [0 for _ in GRIDS]
    for (shares, _), members in kinds.items():
        whole, cells = _units([layers[index] for index in members], shares)
        for grid, found in enumerate((whole, cells)):
            _, count, width = found.shape
            by_grid[grid].append(tf.reshape(found, (-1, count * width)))
            places = filled[grid] + np.arange(count * width).reshape(count, width)
            filled[grid] += count * width
            _note_places(order[grid], places, [layers[index] for index in members], members)
    results = []
    for parts, places_of in zip(by_grid, order, strict=True):
        columns = tf.concat(parts, axis=1)
        wanted = np.concatenate([places_of[index] for index in range(len(layers))])
        results.append(tf.gather(columns, wanted.astype(np.int32), axis=1))
    return tuple(results)


def _units(layers: list[_LayerMoments], shares: tuple[float, ...]) -> tuple[tf.Tensor, tf.Tensor]:
    """Of the whole image `[n, 1, w]` and of its cells `[n, cells, w]`; w = means of all channels, then variances."""
    mean = tf.concat([layer.mean for layer in layers], axis=2)
    moving_mean, moving_variance, epsilon = (
        tf.concat(values, axis=0)
        for values in zip(*(layer.moving for layer in layers), strict=True)
    )
    scale = moving_variance + epsilon
    weights = tf.constant(np.asarray(shares)[None, :, None], mean.dtype)
    whole_mean = tf.reduce_sum(weights * mean, axis=1, keepdims=True)

    def units(mean, variance):
        means = (mean - moving_mean) * tf.math.rsqrt(scale)
        if variance is None:
            return means
        return tf.concat([means, tf.math.log((variance + epsilon) / scale)], axis=2)

    if layers[0].variance is None:
        return units(whole_mean, None), units(mean, None)
    variance = tf.concat([layer.variance for layer in layers], axis=2)
    spread = variance + tf.square(mean - whole_mean)
    whole_variance = tf.reduce_sum(weights * spread, axis=1, keepdims=True)
    return units(whole_mean, whole_variance), units(mean, variance)


def _note_places(
    order: dict[int, np.ndarray],
    places: np.ndarray,
    layers: list[_LayerMoments],
    indices: list[int],
) -> None:
    """Records the positions of every layer's columns, cell by cell, means before variances."""
    widths = [layer.mean.shape[2] for layer in layers]
    starts = np.cumsum([0, *widths])
    moments = 1 if layers[0].variance is None else 2
    for index, start, width in zip(indices, starts, widths, strict=False):
        own = [places[:, moment * starts[-1] + start :][:, :width] for moment in range(moments)]
        order[index] = np.concatenate(own, axis=1).ravel()


def _cells(sides: Any) -> np.ndarray | None:
    """Which pixels of a map are in which cell of the finest grid, 0 or 1 `[cells, pixels]`.

    None if there is only one cell: without two sides, or with a side that is unknown or too small.
    """
    grid = GRIDS[-1]
    if len(sides) != 2 or any((side or 0) < grid for side in sides):
        return None
    rows, columns = (_cell_of(side, grid) for side in sides)
    cell = rows[:, None] * grid + columns
    return (cell.ravel() == np.arange(grid * grid)[:, None]).astype(np.float64)


def _cell_of(side: int, grid: int) -> np.ndarray:
    cuts = [side * cut // grid for cut in range(1, grid)]
    return np.searchsorted(cuts, np.arange(side), side="right")


def _channels_last(layer: keras.layers.BatchNormalization, inputs: tf.Tensor) -> tf.Tensor:
    rank = len(inputs.shape)
    axis = layer.axis % rank
    if axis == rank - 1:
        return inputs
    order = [one for one in range(rank) if one != axis]
    return tf.transpose(inputs, [*order, axis])


def _mixed(moving: Moments, test: Moments, ratio: tf.Tensor) -> Moments:
    (mean, variance), (test_mean, test_variance) = moving, test
    ratio = tf.cast(ratio, mean.dtype)
    mixed_mean = (1 - ratio) * mean + ratio * test_mean
    mixed_variance = (1 - ratio) * (variance + tf.square(mean - mixed_mean)) + ratio * (
        test_variance + tf.square(test_mean - mixed_mean)
    )
    return mixed_mean, mixed_variance


def _moving(layer: keras.layers.BatchNormalization, inputs: tf.Tensor) -> Moments:
    return (
        along_axis(layer, layer.moving_mean, inputs),
        along_axis(layer, layer.moving_variance, inputs),
    )


def _spatial_mean(layer: keras.layers.BatchNormalization, values: tf.Tensor) -> tf.Tensor:
    rank = len(values.shape)
    axes = [axis for axis in range(1, rank) if axis != layer.axis % rank]
    return tf.reduce_mean(values, axis=axes, keepdims=True) if axes else values
