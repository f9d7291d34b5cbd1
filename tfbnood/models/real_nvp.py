"""RealNVP (Dinh et al. 2017) with batch normalisation inside the coupling networks only.

Batch normalisation between couplings would not give a density in training mode, so there is none.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tfbnood._core.batching import map_batches
from tfbnood._core.images import as_images
from tfbnood.errors import DataError
from tfbnood.models.base import LikelihoodModel
from tfbnood.models.bijectors import (
    ChannelCoupling,
    CheckerboardCoupling,
    Composition,
    Inverted,
    PartialBijector,
    PixelLogit,
    SinglePassBijector,
    Squeeze,
)
from tfbnood.models.layers import BatchNormalization, ResidualBlock, WeightNormConv2D
from tfbnood.models.noise import Noise, scoring_noise

__all__ = ["CouplingNetwork", "RealNVP"]


@keras.saving.register_keras_serializable(package="tfbnood")
class RealNVP(LikelihoodModel):
    """A multi-scale flow of affine couplings between images and N(0, I).

    `log p(x) = log N(f⁻¹(x + u); 0, I) + log |det df⁻¹/dx|` with dequantisation noise `u ~ U[0, 1)`: a lower bound
    of the discrete image's log-likelihood. Every scale but the last: 3 checkerboard couplings, squeeze, 3 channel
    couplings, half of the variables split off; the last: 4 checkerboard couplings. A sample of temperature T is
    `f(z)` with `z ~ N(0, T²I)`.

    Args:
        image_shape: `(height, width, channels)`; sides divisible by `2^(scales − 1)`.
        channels: of the coupling networks at the first scale; doubled at each further scale.
        blocks: residual blocks of a coupling network.
        scales: Defaults to 2, the paper's "downscale once".
        seed: of the initial weights and of the noise in `fit`.

    Example:
        >>> model = RealNVP(image_shape=(8, 8, 1), channels=8, blocks=1)
        >>> model.log_prob(np.zeros((5, 8, 8, 1))).shape
        TensorShape([5])

    Reference: Density estimation using Real NVP, arXiv:1605.08803.
    """

    preset_family = "realnvp"

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (28, 28, 1),
        *,
        channels: int = 32,
        blocks: int = 4,
        scales: int = 2,
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(image_shape, seed=seed, **kwargs)
        divisor = 2 ** (scales - 1)
        if any(side % divisor for side in self.image_shape[:2]):
            raise DataError(
                f"image_shape must have sides divisible by {divisor} for a RealNVP with scales={scales}. "
                f"Received: image_shape={image_shape}"
            )
        self.channels = channels
        self.blocks = blocks
        self.scales = scales
        # Keras finds layers in a list of the model, but not those inside bijectors.
        self.networks: list[CouplingNetwork] = []
        seeds = itertools.count(100_003 * seed)
        flow = self._scale(self.image_shape[2], channels, scales, seeds)
        self.bijector = Composition([PixelLogit(), *flow], name="real_nvp")
        self.prior = tfd.Sample(tfd.Normal(0.0, 1.0), sample_shape=self.image_shape)
        self._encode_batch = tf.function(self._encode_batch_eagerly, autograph=False)
        self.build()

    def _scale(
        self, image_channels: int, channels: int, scales: int, seeds: Iterator[int]
    ) -> list[SinglePassBijector]:
        """The bijectors of one scale and all below it, from image to latent; the image's shape is kept."""

        def network(outputs: int, width: int) -> CouplingNetwork:
            self.networks.append(CouplingNetwork(outputs, width, self.blocks, seeds=seeds))
            return self.networks[-1]

        checkerboards: list[SinglePassBijector] = [
            CheckerboardCoupling(network(image_channels, channels), parity=index % 2)
            for index in range(4 if scales == 1 else 3)
        ]
        if scales == 1:
            return checkerboards
        half = 2 * image_channels
        by_channel = [
            ChannelCoupling(network(half, 2 * channels), parity=index % 2) for index in range(3)
        ]
        rest = Composition(self._scale(half, 2 * channels, scales - 1, seeds))
        return [*checkerboards, Squeeze(), *by_channel, PartialBijector(rest), Inverted(Squeeze())]

    def encode(self, images: Any, *, batch_size: int = 64, seed: int = 0) -> np.ndarray:
        """Latents in evaluation mode, float32, shaped like the images; close to N(0, I) if the model fits.

        Args:
            images: `[n, height, width, channels]` in 0–255.
            batch_size: images per pass. Defaults to 64.
            seed: of the dequantisation noise, one draw for all images.
        """
        return map_batches(
            lambda batch: self._encode_batch(batch, seed),
            as_images(images, self.image_shape),
            batch_size=batch_size,
        )

    def _encode_batch_eagerly(self, images, seed):
        latents, _ = self._encode(self._checked(images), False, scoring_noise(seed))
        return latents

    def _log_prob(self, images: tf.Tensor, training: bool, noise: Noise) -> tf.Tensor:
        latents, log_det = self._encode(images, training, noise)
        return self.prior.log_prob(latents) + log_det

    def _encode(self, images, training, noise):
        dequantised = images + noise.uniform(tf.shape(images)[0], self.image_shape)
        return self.bijector.inverse_and_log_det(dequantised, training)

    def _sample(self, count: int, temperature: float, seed: tuple[int, int]) -> tf.Tensor:
        latents = temperature * self.prior.sample(count, seed=seed)
        return self.bijector.forward_and_log_det(latents)[0]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "channels": self.channels,
            "blocks": self.blocks,
            "scales": self.scales,
        }


class CouplingNetwork(keras.layers.Layer):
    """The residual network that computes a coupling's log-scale and shift.

    Batch normalisation of the input, `[x, −x]`, ReLU, 3×3 convolution, residual blocks whose 1×1 skip outputs are
    summed, batch normalisation, ReLU, 1×1 convolution. The log-scale is `rescale · tanh(·)`, with a learned
    `rescale` per channel; it starts at 0, and the coupling as the identity.

    Args:
        outputs: channels of log-scale and of shift.
        channels: of the hidden layers.
        blocks: residual blocks.
        seeds: of the initial weights, one per convolution.
    """

    def __init__(
        self, outputs: int, channels: int, blocks: int, *, seeds: Iterator[int], **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.outputs = outputs
        self.input_norm = BatchNormalization()
        self.input_conv = WeightNormConv2D(channels, 3, seed=next(seeds))
        self.blocks = []
        self.skips = [WeightNormConv2D(channels, 1, seed=next(seeds))]
        for _ in range(blocks):
            self.blocks.append(ResidualBlock(channels, seeds=(next(seeds), next(seeds))))
            self.skips.append(WeightNormConv2D(channels, 1, seed=next(seeds)))
        self.output_norm = BatchNormalization()
        self.output_conv = WeightNormConv2D(2 * outputs, 1, zero_gain=True, seed=next(seeds))

    def build(self, input_shape):
        self.rescale = self.add_weight(
            name="rescale", shape=(self.outputs,), initializer="ones", autocast=False
        )

    def call(self, inputs, training=False):
        hidden = self.input_norm(inputs, training=training)
        hidden = self.input_conv(tf.nn.relu(tf.concat((hidden, -hidden), axis=-1)))
        summed = self.skips[0](hidden)
        for block, skip in zip(self.blocks, self.skips[1:], strict=True):
            hidden = block(hidden, training=training)
            summed += skip(hidden)
        summed = tf.nn.relu(self.output_norm(summed, training=training))
        # Log-determinants are sums of these: float32 from here on.
        outputs = tf.cast(self.output_conv(summed), tf.float32)
        log_scale, shift = tf.split(outputs, 2, axis=-1)
        return self.rescale * tf.tanh(log_scale), shift
