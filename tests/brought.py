"""A user's own Keras model with stock batch normalisation: what `Detector` must work with, and quick to compile."""

import keras
import numpy as np
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tests")
class BroughtModel(keras.Model):
    """A Gaussian around a prediction of each pixel row from the row above it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = keras.layers.BatchNormalization(epsilon=1e-5)
        self.conv = keras.layers.Conv2D(1, 3, padding="same", use_bias=False)

    def call(self, images, training=False):
        above = tf.pad(tf.cast(images, tf.float32)[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0)))
        return self.conv(self.norm(above / 64.0, training=training))

    def log_prob(self, images, training=False):
        errors = tf.cast(images, tf.float32) / 64.0 - self(images, training=training)
        return tf.reduce_sum(-0.5 * errors**2 - np.log(64) - 0.9189, axis=(1, 2, 3))


@keras.saving.register_keras_serializable(package="tests")
class PlainModel(keras.Model):
    """A model without batch normalisation."""

    def call(self, images):
        return tf.cast(images, tf.float32) / 255

    def log_prob(self, images, training=False):
        return -tf.reduce_sum(self(images) ** 2, axis=(1, 2, 3))


def trained_brought_model(images: np.ndarray, seed: int = 0) -> BroughtModel:
    """A brought model with random weights and moving moments like those of the images."""
    model = BroughtModel()
    model.log_prob(images[:2])
    rng = np.random.default_rng(seed)
    model.conv.kernel.assign(0.3 * rng.normal(size=model.conv.kernel.shape))
    for _ in range(40):
        model(images[rng.permutation(len(images))[:256]], training=True)
    # 40 updates at Keras' momentum of 0.99 are not enough to forget the initial moments.
    above = np.pad(images[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0))) / 64.0
    model.norm.moving_mean.assign([above.mean()])
    model.norm.moving_variance.assign([above.var()])
    return model
