"""Other moments for a model's batch normalisations, and each image's own moments, without changing the model.

For as long as a function is traced, the `call` of every batch normalisation is another one, which takes its mean and
variance from a rule given here; afterwards the model is as it was. So stock layers of a user's model work as ours do.

Notation: `m`, `v` are the moving moments, `m_b`, `v_b` those of the test images, and r is the ratio of mixing:
`m_r = (1−r)·m + r·m_b`, `v_r = (1−r)·(v + (m − m_r)²) + r·(v_b + (m_b − m_r)²)`, the moments of a batch of which a
share of r are test images. r = 0 is evaluation mode, r = 1 training mode.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

__all__ = [
    "batch_normalizations",
    "image_moments",
    "log_prob_alone",
    "log_prob_with_mixed_moments",
    "once_a_model",
]

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
def log_prob_alone(model: Any, images: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    """Compiles `(images, ratio) → [n]`: as above, but every image is mixed with the moving moments alone."""

    def mixed(layer, inputs):
        return _mixed(_moving(layer, inputs), _own(layer, inputs), ratio)

    with _ruled(model, mixed):
        return model.log_prob(images, training=False)


@once_a_model
def image_moments(model: Any, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compiles `images → (log p [n], moments [n, f])` in evaluation mode.

    The moments are each image's own in every channel of every batch normalisation, in units of the moving ones:
    `(m_i − m)/√(v + ε)`, and `log((v_i + ε)/(v + ε))` where an image has more than one value a channel.
    """
    collected: list[tf.Tensor] = []

    def moving(layer, inputs):
        mean, variance = _moving(layer, inputs)
        own_mean, own_variance = _own(layer, inputs)
        rows = tf.shape(inputs)[0]
        scaled = variance + layer.epsilon
        collected.append(tf.reshape((own_mean - mean) * tf.math.rsqrt(scaled), (rows, -1)))
        if len(inputs.shape) > 2:
            ratio = (own_variance + layer.epsilon) / scaled
            collected.append(tf.reshape(tf.math.log(ratio), (rows, -1)))
        return mean, variance

    with _ruled(model, moving):
        log_prob = model.log_prob(images, training=False)
    return log_prob, tf.concat(collected, axis=1)


@contextlib.contextmanager
def _ruled(model: Any, rule: Rule) -> Iterator[None]:
    """While open, every batch normalisation of the model takes its moments from the rule, and no variable changes."""

    def call_of(layer):
        def call(inputs, training=None, mask=None):
            inputs = tf.cast(inputs, layer.variable_dtype)
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


def _own(layer: keras.layers.BatchNormalization, inputs: tf.Tensor) -> Moments:
    """Each row's own moments."""
    mean = _spatial_mean(layer, inputs)
    return mean, _spatial_mean(layer, tf.square(inputs - mean))


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
