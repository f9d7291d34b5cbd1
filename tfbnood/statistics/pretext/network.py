"""The networks behind `pretext`: their layers, training and inference."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfbnood._core.progress import bar
from tfbnood.data.pseudo import pseudo_outliers

__all__ = []

_BATCH = 176  # maximum images of a step; each appears untouched and once per kind
_PER_STEP = 4  # minimum reference images per step: with more steps a small set would be memorised
_LEAST = 100  # minimum steps, however few the images: with fewer it learns nothing

# Of each convolution: outputs in multiples of `width`, and the stride.
_CONVOLUTIONS = ((1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1))


class Layer(NamedTuple):
    """A layer with a kernel.

    Attributes:
        name: unique within the network.
        shape: of the kernel; the outputs come last.
        stride: of a convolution, which batch normalisation and a ReLU follow. None for the last layer, which is dense
            and takes the means over all places.
    """

    name: str
    shape: tuple[int, ...]
    stride: int | None


class Weights(NamedTuple):
    """What a layer multiplies by and adds, including batch normalisation."""

    kernel: np.ndarray
    bias: np.ndarray


def layers_of(channels: int, width: int, classes: int) -> list[Layer]:
    """The one definition of the network: training builds it, scoring runs it, and fitted arrays use its names."""
    layers: list[Layer] = []
    inputs = channels
    for index, (multiple, stride) in enumerate(_CONVOLUTIONS):
        outputs = multiple * width
        layers.append(Layer(f"convolution_{index}", (3, 3, inputs, outputs), stride))
        inputs = outputs
    return [*layers, Layer("dense", (inputs, classes), None)]


def scaled(images: tf.Tensor) -> tf.Tensor:
    """Pixels in −1 to 1."""
    return tf.cast(images, tf.float32) / 127.5 - 1


def run_network(
    layers: Sequence[Layer],
    images: tf.Tensor,
    weights: Callable[[str], tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Features, the means of the last convolution's channels, and log probabilities of the classes.

    Args:
        layers: from `layers_of`.
        images: `[n, height, width, channels]` in 0–255.
        weights: a layer's name → kernel, what to multiply its outputs by, and bias.
    """
    hidden = scaled(images)
    for layer in layers[:-1]:
        kernel, scale, bias = weights(layer.name)
        hidden = tf.nn.relu(tf.nn.conv2d(hidden, kernel, layer.stride, "SAME") * scale + bias)
    features = tf.reduce_mean(hidden, axis=(1, 2))
    kernel, scale, bias = weights(layers[-1].name)
    return features, tf.nn.log_softmax(tf.matmul(features, kernel) * scale + bias)


def train_network(
    reference: np.ndarray, kinds: Sequence[str], steps: int, width: int, seed: int
) -> dict[str, Weights]:
    """By layer, the weights of a network that has learned to distinguish these kinds."""
    layers = layers_of(reference.shape[-1], width, 1 + len(kinds))
    network = make_network(reference.shape[1:], layers, seed)
    steps = number_of_steps(len(reference), steps)
    network.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,  # XLA is slower at convolutions on a CPU.
    )
    # Made here: the data set requests batches in a separate thread, which does not know whether to show a bar.
    shown = bar(range(steps), f"training pretext, {len(kinds)} kinds", unit="step")
    batch = (
        tf.TensorSpec((None, *reference.shape[1:]), tf.uint8),
        tf.TensorSpec((None,), tf.int32),
    )
    stream = tf.data.Dataset.from_generator(
        lambda: batches(reference, kinds, shown, seed), output_signature=batch
    )
    stream = stream.map(lambda images, labels: (scaled(images), labels)).prefetch(1)
    network.fit(stream, steps_per_epoch=steps, shuffle=False, verbose=0)
    return fold_batch_norm(network, layers)


def number_of_steps(images: int, most: int) -> int:
    """Steps of training: fewer for few images."""
    return min(most, max(_LEAST, -(-images // _PER_STEP)))


def batches(
    reference: np.ndarray, kinds: Sequence[str], steps: Sequence[int], seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images and labels by step: untouched images, label 0, and the same images spoiled in every way, 1, 2, …"""
    count = 1 << (_BATCH // (1 + len(kinds))).bit_length() - 1  # a power of two
    labels = np.repeat(np.arange(1 + len(kinds), dtype=np.int32), count)
    random = np.random.RandomState(seed)
    for _ in steps:
        images = reference[random.randint(len(reference), size=count)]
        spoiled = pseudo_outliers(images, seed=random.randint(2**31), kinds=kinds)
        yield np.concatenate([images, *spoiled.values()]), labels


def make_network(shape: tuple[int, ...], layers: Sequence[Layer], seed: int) -> keras.Model:
    """The network to train: scaled images → logits."""
    network = keras.Sequential([keras.Input(shape)])
    for index, layer in enumerate(layers):
        start = keras.initializers.GlorotUniform(seed=seed + index)
        options = {"kernel_initializer": start, "name": layer.name}
        outputs = layer.shape[-1]
        if layer.stride is None:
            network.add(keras.layers.GlobalAveragePooling2D())
            network.add(keras.layers.Dense(outputs, **options))
        else:
            network.add(
                keras.layers.Conv2D(outputs, 3, layer.stride, "same", use_bias=False, **options)
            )
            network.add(keras.layers.BatchNormalization(momentum=0.9, name=_norm_of(layer)))
            network.add(keras.layers.ReLU())
    return network


def fold_batch_norm(network: keras.Model, layers: Sequence[Layer]) -> dict[str, Weights]:
    """By layer, its weights; batch normalisations become part of the convolutions before them."""
    folded = {}
    for layer in layers:
        weights = network.get_layer(layer.name).get_weights()
        if layer.stride is not None:
            norm = network.get_layer(_norm_of(layer))
            gamma, beta, mean, variance = norm.get_weights()
            scale = gamma / np.sqrt(variance + norm.epsilon)
            weights = [weights[0] * scale, beta - mean * scale]
        folded[layer.name] = Weights(*weights)
    return folded


def _norm_of(layer: Layer) -> str:
    return f"{layer.name}_normalization"
