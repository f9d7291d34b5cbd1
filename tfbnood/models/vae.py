"""Variational autoencoder (Kingma & Welling 2014) with batch normalisation in both networks.

The layers are those of the paper's appendix: six convolutions and a dense layer infer, eight
transposed convolutions generate, and every pixel value is one of 256 classes.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow_probability import distributions as tfd

from tfbnood._core.batching import map_batches
from tfbnood._core.images import as_images
from tfbnood.errors import DataError
from tfbnood.models.base import LikelihoodModel
from tfbnood.models.layers import BatchNormalization
from tfbnood.models.noise import Noise, scoring_noise

__all__ = ["VAE"]

Shape = tuple[int, int, int]
LEVELS = 256
# Standard deviations from e⁻⁵ to e⁵: more than a posterior needs, and variances stay finite.
LOG_VARIANCE_BOUND = 10.0


@keras.saving.register_keras_serializable(package="tfbnood")
class VAE(LikelihoodModel):
    """A latent-variable model whose likelihood is a lower bound.

    `log p(x) ≥ log p(x | z) − KL(q(z | x) ‖ N(0, I))` with one reparametrised draw
    `z = μ(x) + σ(x)·ε`, and `p(x | z)` a 256-way categorical for every pixel and channel. With
    `importance_samples` above 1, scoring uses the tighter bound of `importance_weighted_log_prob`;
    `fit` always maximises the ELBO. A sample of temperature T has `z ~ N(0, T²I)`; its pixels are
    then drawn from the unchanged categorical: temperature scales only the latents.

    Batch normalisation and a ReLU come before every convolution, with three exceptions: the image
    is normalised but not rectified, z is neither, and the generator's last two have only the ReLU.

    Args:
        image_shape: `(height, width, channels)`; sides divisible by 4.
        channels: of the layers at full size; doubled at a quarter of it. Defaults to 32, as in the
            paper for grey images; for colour the paper has 96.
        latents: length of z. Defaults to 64.
        bottleneck: outputs of the last convolution of the inference network. Defaults to 256.
        head: channels of the generator's last hidden layer. Defaults to 256.
        importance_samples: draws of z for a score. Defaults to 1, the ELBO.
        seed: of the initial weights and of the noise in `fit`.

    Example:
        >>> model = VAE(image_shape=(8, 8, 1), channels=8, latents=4, bottleneck=16, head=16)
        >>> model.log_prob(np.zeros((5, 8, 8, 1))).shape
        TensorShape([5])

    Reference: Auto-Encoding Variational Bayes, arXiv:1312.6114.
    """

    preset_family = "vae"
    side_divisor = 4

    def __init__(
        self,
        image_shape: Shape = (28, 28, 1),
        *,
        channels: int = 32,
        latents: int = 64,
        bottleneck: int = 256,
        head: int = 256,
        importance_samples: int = 1,
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(image_shape, seed=seed, **kwargs)
        self.channels = channels
        self.latents = latents
        self.bottleneck = bottleneck
        self.head = head
        self.importance_samples = _check_samples(importance_samples, "importance_samples")
        seeds = itertools.count(100_003 * seed)
        shape = self.image_shape
        self.inference = _make_inference_network(shape, channels, bottleneck, latents, seeds)
        self.generator = _make_generator_network(shape, channels, head, latents, seeds)
        self.prior = tfd.Normal(0.0, 1.0)
        self._reconstruct_batch = tf.function(self._reconstruct_batch_eagerly, autograph=False)
        self.build()

    def _log_prob(self, images: tf.Tensor, training: bool, noise: Noise) -> tf.Tensor:
        posterior = self._posterior(images, training)
        if self.importance_samples > 1 and not noise.fresh:
            return self._importance_weighted(
                images, posterior, self.importance_samples, training, noise
            )
        divergence = tf.reduce_sum(tfd.kl_divergence(posterior, self.prior), axis=-1)
        latents = self._draw(posterior, noise)
        return self._log_likelihood(images, latents, training) - divergence

    def importance_weighted_log_prob(
        self, images: Any, samples: int, training: bool = False, *, seed: int | tf.Tensor = 0
    ) -> tf.Tensor:
        """The importance-weighted bound on the log-likelihood in nats, `[n]`.

        `log 1/K · Σₖ p(x, zₖ) / q(zₖ | x)` with `zₖ ~ q(z | x)`: in expectation between the
        ELBO and `log p(x)`, rising with K. The draws are made one by one, so memory does not grow
        with K.

        Args:
            images: `[n, height, width, channels]` in 0–255, one batch.
            samples: K, at least 1.
            training: as for `log_prob`; no variable changes either way.
            seed: of the draws, which are shared by all rows.

        Example:
            >>> model = VAE(image_shape=(8, 8, 1), channels=8, latents=4, bottleneck=16, head=16)
            >>> model.importance_weighted_log_prob(x.test[:5], samples=5).shape
            TensorShape([5])

        Reference: Importance Weighted Autoencoders, arXiv:1509.00519.
        """
        images = self._checked(images)
        samples = _check_samples(samples, "samples")
        with keras.StatelessScope():
            posterior = self._posterior(images, training)
            return self._importance_weighted(
                images, posterior, samples, training, scoring_noise(seed)
            )

    def reconstruct(self, images: Any, *, batch_size: int = 64) -> np.ndarray:
        """Expected pixel values in 0–255 at the posterior's mean, float32, shaped like the images.

        `Σᵥ v · p(v | z = μ(x))` for every pixel and channel, in evaluation mode and constant memory.

        Args:
            images: `[n, height, width, channels]` in 0–255.
            batch_size: images per pass. Defaults to 64.

        Example:
            >>> model = VAE(image_shape=(8, 8, 1), channels=8, latents=4, bottleneck=16, head=16)
            >>> model.reconstruct(x.test[:5]).shape
            (5, 8, 8, 1)
        """
        images = as_images(images, self.image_shape)
        return map_batches(self._reconstruct_batch, images, batch_size=batch_size)

    def _reconstruct_batch_eagerly(self, images):
        posterior = self._posterior(self._checked(images), training=False)
        probabilities = tf.nn.softmax(self._logits(posterior.mean(), training=False))
        return tf.linalg.matvec(probabilities, tf.range(LEVELS, dtype=tf.float32))

    def _sample(self, count: int, temperature: float, seed: tuple[int, int]) -> tf.Tensor:
        latents = temperature * tf.random.stateless_normal((count, self.latents), seed)
        logits = tf.reshape(self._logits(latents, training=False), (-1, LEVELS))
        pixels = tf.random.stateless_categorical(
            logits, 1, tf.random.experimental.stateless_fold_in(seed, 1)
        )
        return tf.cast(tf.reshape(pixels, (count, *self.image_shape)), tf.float32)

    def _posterior(self, images: tf.Tensor, training: bool) -> tfd.Normal:
        """q(z | x), independent normals `[n, latents]`."""
        moments = self.inference(images / 127.5 - 1.0, training=training)
        moments = tf.cast(moments, tf.float32)  # whatever the precision of the network
        mean, log_variance = tf.split(moments, 2, axis=-1)
        log_variance = LOG_VARIANCE_BOUND * tf.tanh(log_variance / LOG_VARIANCE_BOUND)
        return tfd.Normal(mean, tf.exp(0.5 * log_variance))

    def _draw(self, posterior: tfd.Normal, noise: Noise) -> tf.Tensor:
        rows = tf.shape(posterior.loc)[0]
        return posterior.loc + posterior.scale * noise.normal(rows, (self.latents,))

    def _logits(self, latents: tf.Tensor, training: bool) -> tf.Tensor:
        """Unnormalised log-probabilities of pixel values, `[n, height, width, channels, 256]`."""
        outputs = self.generator(latents, training=training)
        return tf.cast(tf.reshape(outputs, (-1, *self.image_shape, LEVELS)), tf.float32)

    def _log_likelihood(self, images: tf.Tensor, latents: tf.Tensor, training: bool) -> tf.Tensor:
        """`log p(x | z)`, `[n]`."""
        # Memory peaks here: a Categorical would hold a normalised copy of the logits, 256 per pixel.
        surprise = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.cast(images, tf.int32), logits=self._logits(latents, training)
        )
        return -tf.reduce_sum(surprise, axis=(1, 2, 3))

    def _importance_weighted(self, images, posterior, samples, training, noise):
        def add_draw(log_total: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
            latents = self._draw(posterior, noise.fold(index))
            log_ratio = self.prior.log_prob(latents) - posterior.log_prob(latents)
            log_weight = tf.reduce_sum(log_ratio, axis=-1)
            log_weight += self._log_likelihood(images, latents, training)
            return tfp.math.log_add_exp(log_total, log_weight)

        # The generator is traced once; draws in parallel would each hold their logits.
        nothing = tf.fill(tf.shape(images)[:1], -np.inf)
        log_total = tf.foldl(add_draw, tf.range(samples), nothing, parallel_iterations=1)
        return log_total - math.log(samples)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "channels": self.channels,
            "latents": self.latents,
            "bottleneck": self.bottleneck,
            "head": self.head,
            "importance_samples": self.importance_samples,
        }


def _check_samples(samples: int, name: str) -> int:
    if samples < 1:
        raise DataError(f"{name} must be at least 1. Received: {name}={samples}")
    return samples


def _make_inference_network(
    image_shape: Shape, channels: int, bottleneck: int, latents: int, seeds: Iterator[int]
) -> keras.Sequential:
    """From an image in [−1, 1] to the mean and raw log-variance of q(z | x), `[n, 2·latents]`."""
    height, width, _ = image_shape
    return keras.Sequential(
        [
            keras.Input(image_shape),
            # The image is not an activation: a ReLU would hide its darker half.
            *_make_stage(channels, seeds, rectify=False),
            *_make_stage(channels, seeds, strides=2),
            *_make_stage(channels, seeds),
            *_make_stage(2 * channels, seeds, strides=2),
            *_make_stage(2 * channels, seeds),
            *_make_stage(bottleneck, seeds, kernel_size=(height // 4, width // 4), padding="valid"),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(2 * latents, kernel_initializer=_initializer(seeds)),
        ],
        name="inference",
    )


def _make_generator_network(
    image_shape: Shape, channels: int, head: int, latents: int, seeds: Iterator[int]
) -> keras.Sequential:
    """From z to 256 logits for every pixel and channel, `[n, height, width, channels·256]`."""
    height, width, image_channels = image_shape
    coarse = (height // 4, width // 4, 2 * channels)
    transposed = keras.layers.Conv2DTranspose
    return keras.Sequential(
        [
            keras.Input((latents,)),
            # Row 1, a transposed convolution of a 1×1 map. Without batch normalisation: scored rows
            # share one draw of ε, and normalising z would subtract that very draw.
            keras.layers.Dense(math.prod(coarse), kernel_initializer=_initializer(seeds)),
            keras.layers.Reshape(coarse),
            *_make_stage(2 * channels, seeds, layer=transposed, strides=2),
            *_make_stage(2 * channels, seeds),
            *_make_stage(channels, seeds, layer=transposed, strides=2),
            *_make_stage(channels, seeds),
            *_make_stage(channels, seeds),
            keras.layers.ReLU(),
            keras.layers.Conv2D(head, 5, padding="same", kernel_initializer=_initializer(seeds)),
            keras.layers.ReLU(),
            keras.layers.Conv2D(LEVELS * image_channels, 1, kernel_initializer=_initializer(seeds)),
        ],
        name="generator",
    )


def _make_stage(
    filters: int,
    seeds: Iterator[int],
    *,
    rectify: bool = True,
    layer: type[keras.layers.Layer] = keras.layers.Conv2D,
    kernel_size: int | tuple[int, int] = 5,
    padding: str = "same",
    strides: int = 1,
) -> list[keras.layers.Layer]:
    """The layers of `conv(relu(bn(x)))`."""
    weights = _initializer(seeds)
    convolution = layer(filters, kernel_size, strides, padding, kernel_initializer=weights)
    activation = [keras.layers.ReLU()] if rectify else []
    return [BatchNormalization(), *activation, convolution]


def _initializer(seeds: Iterator[int]) -> keras.initializers.Initializer:
    # He's initialisation keeps the signal's size through ReLUs: in evaluation mode nothing else does at first.
    return keras.initializers.HeNormal(seed=next(seeds))
