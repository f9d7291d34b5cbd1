"""The networks behind `pretext`, and how they learn."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbnood._core.progress import bar
from tfbnood.data.pseudo import pseudo_outliers

__all__ = []

STRIDES = (1, 1, 2, 1, 2, 1)


_BATCH = 176  # images of a step, at most; each is there untouched and once for every kind


_PER_STEP = 4  # reference images, at least: with more steps a small set would be learned by heart


_LEAST = 100  # steps, however few the images: with less it has learned nothing


def train_network(
    reference: np.ndarray,
    kinds: Sequence[str],
    steps: int,
    width: int,
    seed: int,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Kernel and bias of every layer of a network that has learned to tell these kinds."""
    network = make_network(reference.shape[1:], width, 1 + len(kinds), seed)
    count = 1 << (_BATCH // (1 + len(kinds))).bit_length() - 1  # a power of two
    steps = min(steps, max(_LEAST, -(-len(reference) // _PER_STEP)))
    train = training_step(network, steps)
    labels = tf.repeat(tf.range(1 + len(kinds)), count)
    random = np.random.RandomState(seed)
    for _ in bar(range(steps), f"training pretext, {len(kinds)} kinds", unit="step"):
        images = reference[random.randint(len(reference), size=count)]
        spoiled = pseudo_outliers(images, seed=random.randint(2**31), kinds=kinds)
        train(tf.constant(np.concatenate([images, *spoiled.values()])), labels)
    return fold_batch_norm(network)


def widths(width: int) -> tuple[int, ...]:
    return (width, width, 2 * width, 2 * width, 4 * width, 4 * width)


def scaled(images: tf.Tensor) -> tf.Tensor:
    return tf.cast(images, tf.float32) / 127.5 - 1


def make_network(shape: tuple[int, ...], width: int, classes: int, seed: int) -> keras.Model:
    network = keras.Sequential([keras.Input(shape)])
    for index, (outputs, stride) in enumerate(zip(widths(width), STRIDES, strict=True)):
        start = keras.initializers.GlorotUniform(seed=seed + index)
        network.add(
            keras.layers.Conv2D(
                outputs, 3, stride, "same", use_bias=False, kernel_initializer=start
            )
        )
        network.add(keras.layers.BatchNormalization(momentum=0.9))
        network.add(keras.layers.ReLU())
    network.add(keras.layers.GlobalAveragePooling2D())
    start = keras.initializers.GlorotUniform(seed=seed + len(STRIDES))
    network.add(keras.layers.Dense(classes, kernel_initializer=start))
    return network


def training_step(network: keras.Model, steps: int) -> Any:
    """Compiles `(images, labels) → None`, one step of Adam with a rate that falls as a cosine does."""
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, steps))
    optimizer.build(network.trainable_variables)

    @tf.function(autograph=False)
    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = network(scaled(images), training=True)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            )
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))

    return step


def fold_batch_norm(network: keras.Model) -> list[tuple[np.ndarray, np.ndarray]]:
    """Kernel and bias of every layer, the batch normalisations as part of the convolutions before them."""
    parts = []
    layers = iter(network.layers)
    for layer in layers:
        if isinstance(layer, keras.layers.Conv2D):
            (kernel,) = layer.get_weights()
            norm = next(layers)
            gamma, beta, mean, variance = norm.get_weights()
            scale = gamma / np.sqrt(variance + norm.epsilon)
            parts.append((kernel * scale, beta - mean * scale))
        elif weights := layer.get_weights():
            parts.append(tuple(weights))
    return parts
