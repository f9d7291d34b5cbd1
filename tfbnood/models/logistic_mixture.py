"""The discretised logistic mixture of PixelCNN++: likelihood of a pixel and draws from it, as pure functions.

A pixel's parameters are one vector: `k` mixture logits, then `channels · k` means, `channels · k` log-scales and
`channels · (channels − 1) / 2 · k` coefficients, before `tanh`. Means and scales are in units where 0–255 is [−1, 1].

Reference: PixelCNN++, arXiv:1701.05517.
"""

import math
from typing import NamedTuple

import tensorflow as tf

__all__ = [
    "discretized_logistic_mixture_log_prob",
    "parameter_count",
    "sample_discretized_logistic_mixture",
    "scale_pixels",
]

MIN_LOG_SCALE = -7.0
HALF_BIN = 1 / 255  # the 256 grey levels are 2/255 apart in [−1, 1]


class _Mixture(NamedTuple):
    """Separated parameters: logits `[..., k]`; one tensor `[..., k]` for each channel or pair of channels."""

    logits: tf.Tensor
    means: list[tf.Tensor]
    log_scales: list[tf.Tensor]
    coefficients: list[tf.Tensor]

    def mean(self, channel: int, earlier: list[tf.Tensor]) -> tf.Tensor:
        """Means of a channel given the earlier channels' values `[..., 1]` in [−1, 1]."""
        first = channel * (channel - 1) // 2
        weights = self.coefficients[first : first + channel]
        shifts = (weight * value for weight, value in zip(weights, earlier, strict=True))
        return sum(shifts, self.means[channel])


def parameter_count(channels: int, mixtures: int) -> int:
    """Length of a pixel's parameter vector: 3 per component for grey, 10 for three channels."""
    return mixtures * (1 + 2 * channels + channels * (channels - 1) // 2)


def scale_pixels(pixels: tf.Tensor) -> tf.Tensor:
    """Maps 0–255 to [−1, 1]."""
    return pixels / 127.5 - 1.0


def discretized_logistic_mixture_log_prob(pixels: tf.Tensor, parameters: tf.Tensor) -> tf.Tensor:
    """Log-probability in nats of discrete pixels.

    `log Σᵢ πᵢ Πc [σ((x_c + 1/255 − μ_ic) / s_ic) − σ((x_c − 1/255 − μ_ic) / s_ic)]` with x in [−1, 1]. The lowest level
    gets the whole lower tail, the highest the upper one. The mean of a channel is linear in the channels before it:
    `μ_g + tanh(a)·x_r`, `μ_b + tanh(b)·x_r + tanh(c)·x_g`. Log-scales are clipped at −7 from below.

    Args:
        pixels: `[..., channels]`, float32 whole numbers in 0–255.
        parameters: `[..., parameter_count(channels, mixtures)]`.

    Returns:
        `[...]`.

    Example:
        >>> import tensorflow as tf
        >>> grey = tf.range(256.0)[:, None]
        >>> log_probs = discretized_logistic_mixture_log_prob(grey, tf.zeros((256, 30)))
        >>> round(float(np.exp(log_probs).sum()), 3)
        1.0
    """
    channels = pixels.shape[-1]
    mixture = _take_apart(parameters, channels)
    log_probs = tf.nn.log_softmax(mixture.logits)
    values = tf.split(scale_pixels(pixels), channels, axis=-1)
    for channel, value in enumerate(values):
        mean = mixture.mean(channel, values[:channel])
        log_probs += _discretized_logistic_log_prob(value, mean, mixture.log_scales[channel])
    return tf.reduce_logsumexp(log_probs, axis=-1)


def sample_discretized_logistic_mixture(
    parameters: tf.Tensor, channels: int, *, temperature: float | tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Draws pixels, float32 whole numbers in 0–255, `[n, channels]`.

    Args:
        parameters: `[n, parameter_count(channels, mixtures)]`.
        channels: of the image.
        temperature: divides the mixture logits; the scales of the logistics stay.
        seed: int32 tensor of shape [2].
    """
    mixture = _take_apart(parameters, channels)
    component_seed, value_seed = tf.unstack(tf.random.split(seed, 2))
    # The component by the Gumbel trick, as a one-hot mask that selects the parameters.
    gumbel = -tf.math.log(-tf.math.log(_open_uniform(tf.shape(mixture.logits), component_seed)))
    best = tf.argmax(mixture.logits / temperature + gumbel, axis=-1)
    chosen = tf.one_hot(best, mixture.logits.shape[-1])
    uniform = _open_uniform((tf.shape(parameters)[0], channels), value_seed)
    standard_logistic = tf.math.log(uniform) - tf.math.log1p(-uniform)
    pixels: list[tf.Tensor] = []
    for channel in range(channels):
        # Rounded values, as in the likelihood, condition the next channel.
        mean = mixture.mean(channel, [scale_pixels(pixel) for pixel in pixels])
        mean, log_scale = (
            tf.reduce_sum(chosen * choices, axis=-1, keepdims=True)
            for choices in (mean, mixture.log_scales[channel])
        )
        value = mean + tf.exp(log_scale) * standard_logistic[:, channel : channel + 1]
        pixels.append(tf.clip_by_value(tf.round((value + 1.0) * 127.5), 0.0, 255.0))
    return tf.concat(pixels, axis=-1)


def _take_apart(parameters: tf.Tensor, channels: int) -> _Mixture:
    pairs = channels * (channels - 1) // 2
    parts = tf.split(parameters, 1 + 2 * channels + pairs, axis=-1)
    return _Mixture(
        logits=parts[0],
        means=parts[1 : 1 + channels],
        log_scales=[
            tf.maximum(part, MIN_LOG_SCALE) for part in parts[1 + channels : 1 + 2 * channels]
        ],
        coefficients=[tf.tanh(part) for part in parts[1 + 2 * channels :]],
    )


def _discretized_logistic_log_prob(
    value: tf.Tensor, mean: tf.Tensor, log_scale: tf.Tensor
) -> tf.Tensor:
    """Log of `σ(high) − σ(low)`, without the difference.

    `σ(high) − σ(low) = σ(high) · σ(−low) · (1 − exp(low − high))` is exact and a product of three factors, so its
    logarithm needs neither a floor nor the original's switch to the density in narrow or far-away bins. At the
    lowest level `low` is −∞, at the highest `high` is +∞, and two of the factors are 1.
    """
    inverse_scale = tf.exp(-log_scale)
    log_below_high = tf.math.log_sigmoid(inverse_scale * (value - mean + HALF_BIN))
    log_above_low = tf.math.log_sigmoid(-inverse_scale * (value - mean - HALF_BIN))
    # log(1 − exp(−width)) as log(width) plus a term that vanishes for narrow bins: `exp` may underflow in the second.
    width = tf.maximum(2 * HALF_BIN * inverse_scale, 1e-6)
    log_width = math.log(2 * HALF_BIN) - log_scale
    log_inside = log_width + tf.math.log(-tf.math.expm1(-width) / width)
    lowest, highest = value < HALF_BIN - 1.0, value > 1.0 - HALF_BIN
    return tf.where(
        lowest,
        log_below_high,
        tf.where(highest, log_above_low, log_below_high + log_above_low + log_inside),
    )


def _open_uniform(shape, seed: tf.Tensor) -> tf.Tensor:
    # Never exactly 0: the logarithm would be infinite.
    return tf.random.stateless_uniform(shape, seed, minval=1e-7, maxval=1.0)
