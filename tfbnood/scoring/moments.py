"""Other moments for a model's batch normalisations, and each image's own moments, without changing the model.

For as long as a function is traced, the `call` of every batch normalisation is another one, which takes its mean and
variance from a rule given here; afterwards the model is as it was. So stock layers of a user's model work as ours do.

Notation: `m`, `v` are the moving moments, `m_b`, `v_b` those of the test images, and r is the ratio of mixing:
`m_r = (1−r)·m + r·m_b`, `v_r = (1−r)·(v + (m − m_r)²) + r·(v_b + (m_b − m_r)²)`, the moments of a batch of which a
share of r are test images. r = 0 is evaluation mode, r = 1 training mode.
"""

import collections
import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

__all__ = [
    "GRIDS",
    "batch_normalizations",
    "image_moments",
    "log_prob_with_mixed_moments",
    "moment_columns",
    "once_a_model",
]

# Moments of the whole image, and of its quarters.
GRIDS = (1, 2)

Moments = tuple[tf.Tensor, tf.Tensor]
Rule = Callable[[keras.layers.BatchNormalization, tf.Tensor], Moments]

# Tracing two functions of one model at once would mix their rules.
_tracing = threading.RLock()


def batch_normalizations(model: Any) -> list[keras.layers.BatchNormalization]:
    """Every batch normalisation in a Keras model, stock or ours, however deep."""
    layers = model._flatten_layers() if isinstance(model, keras.layers.Layer) else []
    return [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]


def once_a_model(trace: Callable) -> Callable:
    """Makes of `trace(model, …)` a function `model → tf.function` that compiles once a model, whoever asks."""
    compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def function_of(model: Any) -> Any:
        if model not in compiled:
            # Weak: the function lives as long as the model, and must not keep it alive.
            reference = weakref.ref(model)
            compiled[model] = tf.function(
                lambda *inputs: trace(reference(), *inputs), autograph=False
            )
        return compiled[model]

    function_of.__doc__ = trace.__doc__
    function_of.__name__ = trace.__name__
    return function_of


@once_a_model
def log_prob_with_mixed_moments(
    model: Any, images: tf.Tensor, weights: tf.Tensor, ratio: tf.Tensor
) -> tf.Tensor:
    """Compiles `(images, weights, ratio) → [n]`: log-likelihoods with moments mixed of moving ones and these images'.

    `weights`, `[n]` with sum 1, are the images' shares in the batch's moments: 0 for rows that only complete a short
    batch.
    """

    def mixed(layer, inputs):
        shares = tf.reshape(tf.cast(weights, inputs.dtype), [-1] + [1] * (len(inputs.shape) - 1))

        def mean_of(values):
            # Rows first: every image counts by its weight, whatever the number of its pixels.
            return tf.reduce_sum(shares * _spatial_mean(layer, values), axis=0, keepdims=True)

        mean = mean_of(inputs)
        variance = mean_of(tf.square(inputs - mean))
        return _mixed(_moving(layer, inputs), (mean, variance), ratio)

    with _ruled(model, mixed):
        return model.log_prob(images, training=False)


@once_a_model
def image_moments(model: Any, images: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Compiles `images → (log p [n], moments)` in evaluation mode; moments are `[n, f]` for every grid of `GRIDS`.

    The moments are each image's own in every channel of every batch normalisation, in units of the moving ones:
    `(m_i − m)/√(v + ε)`, and `log((v_i + ε)/(v + ε))` where an image has more than one value a channel. With grid 1
    they are over the whole image, with grid 2 over each quarter of it.
    """
    collected: dict[int, list[tf.Tensor]] = {grid: [] for grid in GRIDS}

    def moving(layer, inputs):
        mean, variance = _moving(layer, inputs)
        for grid in GRIDS:
            for cell in _cells(layer, inputs, grid):
                collected[grid] += _in_moving_units(layer, cell, mean, variance)
        return mean, variance

    with _ruled(model, moving):
        log_prob = model.log_prob(images, training=False)
    return log_prob, tuple(tf.concat(parts, axis=1) for parts in collected.values())


def moment_columns(model: Any, image_shape: tuple[int, ...]) -> list[tuple[str, str, int]]:
    """What the columns of `image_moments` with grid 1 are: layer, "mean" or "log variance", and number of channels.

    Layers come in the order of their calls. Keras lists them in another, so that a pass has to tell.
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

    with _ruled(model, note):
        model.log_prob(tf.zeros((1, *image_shape), tf.uint8), training=False)
    return columns


@contextlib.contextmanager
def _ruled(model: Any, rule: Rule) -> Iterator[None]:
    """While open, every batch normalisation of the model takes its moments from the rule, and no variable changes."""

    def call_of(layer):
        def call(inputs, training=None, mask=None):
            inputs = tf.cast(inputs, layer.variable_dtype)
            # An absolute scope: within the layers' own, thousands of operations would take names of seventy letters
            # into every export.
            with tf.name_scope("moments/"):
                mean, variance = rule(layer, inputs)
            scale = _along_axis(layer, layer.gamma, inputs) if layer.scale else None
            offset = _along_axis(layer, layer.beta, inputs) if layer.center else None
            outputs = tf.nn.batch_normalization(
                inputs, mean, variance, offset, scale, layer.epsilon
            )
            return tf.cast(outputs, layer.compute_dtype)

        return call

    layers = batch_normalizations(model)
    with _tracing, keras.StatelessScope():
        # Past Keras' own __setattr__, which would track and report a change of the user's layer.
        for layer in layers:
            object.__setattr__(layer, "call", call_of(layer))
        try:
            yield
        finally:
            for layer in layers:
                object.__delattr__(layer, "call")


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
        _along_axis(layer, layer.moving_mean, inputs),
        _along_axis(layer, layer.moving_variance, inputs),
    )


def _in_moving_units(
    layer: keras.layers.BatchNormalization,
    inputs: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
) -> list[tf.Tensor]:
    """Each row's own moments in units of the moving ones, `[n, channels]` each."""
    own_mean = _spatial_mean(layer, inputs)
    scale = variance + layer.epsilon
    units = [(own_mean - mean) * tf.math.rsqrt(scale)]
    if len(inputs.shape) > 2:
        own_variance = _spatial_mean(layer, tf.square(inputs - own_mean))
        units.append(tf.math.log((own_variance + layer.epsilon) / scale))
    return [tf.reshape(unit, (tf.shape(inputs)[0], -1)) for unit in units]


def _cells(layer: keras.layers.BatchNormalization, inputs: tf.Tensor, grid: int) -> list[tf.Tensor]:
    """Cuts feature maps into grid × grid cells; vectors and maps that are too small are one cell."""
    axes = [axis for axis in range(1, len(inputs.shape)) if axis != layer.axis % len(inputs.shape)]
    if len(axes) != 2 or any((inputs.shape[axis] or 0) < grid for axis in axes):
        return [inputs]
    cells = [inputs]
    for axis in axes:
        cuts = [inputs.shape[axis] * cut // grid for cut in range(grid + 1)]
        sizes = [end - start for start, end in itertools.pairwise(cuts)]
        cells = [part for cell in cells for part in tf.split(cell, sizes, axis=axis)]
    return cells


def _spatial_mean(layer: keras.layers.BatchNormalization, values: tf.Tensor) -> tf.Tensor:
    rank = len(values.shape)
    axes = [axis for axis in range(1, rank) if axis != layer.axis % rank]
    return tf.reduce_mean(values, axis=axes, keepdims=True) if axes else values


def _along_axis(
    layer: keras.layers.BatchNormalization, vector: Any, inputs: tf.Tensor
) -> tf.Tensor:
    """A vector of the channels in a shape that broadcasts to the inputs."""
    shape = [1] * len(inputs.shape)
    shape[layer.axis] = -1
    return tf.reshape(tf.cast(vector, inputs.dtype), shape)
