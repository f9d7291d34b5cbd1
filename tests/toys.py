"""Likelihood models that take the sizes of a VAE and compile in no time."""

import math

import keras
import tensorflow as tf

from tfbnood.models import LikelihoodModel


@keras.saving.register_keras_serializable(package="tests")
class Toy(LikelihoodModel):
    """A Gaussian around a prediction of each pixel row from the row above it."""

    preset_family = "vae"

    def __init__(self, image_shape, *, channels, latents, bottleneck, head, seed=0, **kwargs):
        super().__init__(image_shape, seed=seed, **kwargs)
        self.sizes = {
            "channels": channels,
            "latents": latents,
            "bottleneck": bottleneck,
            "head": head,
        }
        self.norm = keras.layers.BatchNormalization()
        self.conv = keras.layers.Conv2D(
            1, 3, padding="same", kernel_initializer=keras.initializers.GlorotUniform(seed)
        )
        self.build()

    def _log_prob(self, images, training, noise):
        above = tf.pad(images[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0))) / 64
        errors = images / 64 - self.conv(self.norm(above, training=training))
        return tf.reduce_sum(-0.5 * errors**2 - math.log(64) - 0.9189, axis=(1, 2, 3))

    def _sample(self, count, temperature, seed):
        return tf.zeros((count, *self.image_shape))

    def get_config(self):
        return {**super().get_config(), **self.sizes}


@keras.saving.register_keras_serializable(package="tests")
class EagerToy(Toy):
    """Without graphs: to compile a step takes longer than a few of them."""

    def compile(self, *args, **kwargs):
        super().compile(*args, **{**kwargs, "run_eagerly": True})
