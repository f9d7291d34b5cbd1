"""A small classifier with batch normalisation, trained on labels in minutes, as a user's own network may be."""

from typing import Any

import keras
import numpy as np

__all__ = ["train_classifier"]


def train_classifier(
    images: np.ndarray, labels: np.ndarray, *, epochs: int = 4, width: int = 16, seed: int = 0
) -> keras.Model:
    """Trains seven convolutions on labelled images, with mirrored and shifted copies.

    Args:
        images: uint8 `[n, height, width, channels]`.
        labels: `[n]`, any integers.
        epochs: over the images.
        width: channels of the first stage; each of the next two has twice as many.
        seed: of the initial weights, the order and the copies.
    """
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    classes, targets = np.unique(labels, return_inverse=True)
    inputs = keras.Input(images.shape[1:])
    x = layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    x = layers.RandomFlip("horizontal", seed=seed)(x)
    x = layers.RandomTranslation(0.1, 0.1, fill_mode="nearest", seed=seed + 1)(x)
    for stage in range(3):
        for _ in range(2):
            x = _convolution(x, width * 2**stage)
        if stage < 2:
            x = layers.MaxPooling2D()(x)
    x = _convolution(x, width * 8)
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, layers.Dense(len(classes), activation="softmax")(x))
    steps = epochs * (len(images) // 64)
    rate = keras.optimizers.schedules.CosineDecay(2e-3, steps)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    model.fit(images, targets, batch_size=64, epochs=epochs, verbose=0)
    return model


def _convolution(x: Any, channels: int) -> Any:
    layers = keras.layers
    x = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))
