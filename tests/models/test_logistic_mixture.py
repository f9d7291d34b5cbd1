import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.special import expit, log_softmax, logsumexp

from tfbnood.models.logistic_mixture import (
    discretized_logistic_mixture_log_prob as log_prob,
)
from tfbnood.models.logistic_mixture import (
    parameter_count,
    sample_discretized_logistic_mixture,
)

tfd = tfp.distributions
LEVELS = np.arange(256, dtype=np.float32)
K = 4


def parameters_of(channels, seed=0, spread=1.0):
    count = parameter_count(channels, K)
    return (spread * np.random.default_rng(seed).normal(size=count)).astype(np.float32)


def only_channels(parameters, kept, channels=3):
    """The parameters of the first `kept` channels: a mixture in its own right."""
    pairs = kept * (kept - 1) // 2
    parts = np.split(parameters, parameter_count(channels, 1))
    chosen = [0, *range(1, 1 + kept), *range(1 + channels, 1 + channels + kept)]
    chosen += range(1 + 2 * channels, 1 + 2 * channels + pairs)
    return np.concatenate([parts[index] for index in chosen])


def in_numpy(pixels, parameters):
    """The formula in float64, the bins as plain differences of the distribution function."""
    channels = pixels.shape[-1]
    parts = np.split(parameters.astype(np.float64), parameter_count(channels, 1), axis=-1)
    x = pixels.astype(np.float64) / 127.5 - 1
    means, log_scales = parts[1 : 1 + channels], parts[1 + channels : 1 + 2 * channels]
    if channels == 3:
        red_to_green, red_to_blue, green_to_blue = np.tanh(parts[7:])
        means[1] = means[1] + red_to_green * x[..., :1]
        means[2] = means[2] + red_to_blue * x[..., :1] + green_to_blue * x[..., 1:2]
    total = log_softmax(parts[0], axis=-1)
    for channel in range(channels):
        value, scale = x[..., channel, None], np.exp(np.maximum(log_scales[channel], -7))
        high = np.where(value > 0.999, np.inf, (value + 1 / 255 - means[channel]) / scale)
        low = np.where(value < -0.999, -np.inf, (value - 1 / 255 - means[channel]) / scale)
        total = total + np.log(expit(high) - expit(low))
    return logsumexp(total, axis=-1)


@pytest.mark.parametrize("channels", [1, 3])
def test_log_prob_equals_the_formula_in_float64(channels):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (200, channels)).astype(np.float32)
    pixels[:20], pixels[20:40] = 0, 255
    parameters = rng.normal(size=(200, parameter_count(channels, K))).astype(np.float32)
    np.testing.assert_allclose(
        log_prob(pixels, parameters), in_numpy(pixels, parameters), rtol=2e-5, atol=2e-5
    )


def test_one_component_equals_the_quantised_logistic_of_tfp():
    mean, log_scale = 0.3, -2.0
    logistic = tfd.Logistic(127.5 * (mean + 1) - 0.5, 127.5 * np.exp(log_scale))
    quantised = tfd.QuantizedDistribution(logistic, low=0.0, high=255.0)
    ours = log_prob(LEVELS[:, None], np.float32([[0.0, mean, log_scale]]))
    # TFP subtracts in float32, which is what ours avoids: compare where it still has digits.
    kept = ours.numpy() > -8
    assert kept.sum() > 150
    np.testing.assert_allclose(ours[kept], quantised.log_prob(LEVELS)[kept], rtol=1e-3)


@pytest.mark.parametrize("log_scale", [-20.0, -7.0, -4.0, 0.0, 6.0])
def test_probabilities_of_all_grey_levels_sum_to_one(log_scale):
    parameters = parameters_of(1, seed=2)
    parameters[2 * K :] = log_scale
    total = tf.reduce_sum(tf.exp(log_prob(LEVELS[:, None], parameters[None])))
    np.testing.assert_allclose(total, 1.0, atol=2e-5)


def test_later_channels_sum_out_and_so_depend_on_earlier_ones_only():
    parameters = parameters_of(3, seed=3)
    red_green = np.tile(np.float32([[40, 200]]), (256, 1))
    for kept in (2, 1, 0):
        every_level = np.concatenate((red_green[:, :kept], LEVELS[:, None]), axis=1)
        joint = log_prob(every_level, only_channels(parameters, kept + 1)[None])
        rest = log_prob(red_green[0, :kept], only_channels(parameters, kept)) if kept else 0.0
        np.testing.assert_allclose(tf.reduce_logsumexp(joint), rest, atol=2e-5)


def test_channels_depend_on_each_other_through_the_coefficients():
    parameters = parameters_of(3, seed=4)
    greens = [
        log_prob(np.float32([red, 100]), only_channels(parameters, 2))
        - log_prob(np.float32([red]), only_channels(parameters, 1))
        for red in (30, 220)
    ]
    assert abs(greens[0] - greens[1]) > 1e-3


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1e4])
def test_values_and_gradients_are_finite_at_extreme_parameters(channels, spread):
    rng = np.random.default_rng(5)
    pixels = tf.constant(rng.choice([0, 1, 127, 254, 255], (300, channels)), tf.float32)
    parameters = tf.constant(
        spread * rng.normal(size=(300, parameter_count(channels, K))), tf.float32
    )
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        value = log_prob(pixels, parameters)
    assert np.isfinite(value).all()
    assert (value.numpy() <= 1e-5).all()
    assert np.isfinite(tape.gradient(value, parameters)).all()


def test_a_far_narrow_bin_has_the_right_slope():
    """The original switches to the density here; without the switch its gradient would be zero."""
    mean = tf.constant(0.9)
    with tf.GradientTape() as tape:
        tape.watch(mean)
        value = log_prob(tf.constant([20.0]), tf.stack([0.0, mean, -7.0]))
    np.testing.assert_allclose(tape.gradient(value, mean), -np.exp(7), rtol=1e-3)


def histogram(draws):
    return np.bincount(draws.astype(int).ravel(), minlength=256) / draws.size


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_draws_have_the_probabilities_of_the_likelihood(temperature):
    parameters = np.float32([0.5, -0.5, -1.1, 0.4, -2.5, -3.0])  # logits, means, log-scales
    draws = sample_discretized_logistic_mixture(
        np.tile(parameters, (40_000, 1)), 1, temperature=temperature, seed=tf.constant((6, 0))
    ).numpy()
    assert np.array_equal(draws, np.rint(draws))
    assert draws.min() >= 0
    assert draws.max() <= 255
    # Temperature changes the share of the components, not their widths.
    expected = np.concatenate((parameters[:2] / temperature, parameters[2:])).astype(np.float32)
    expected = np.exp(log_prob(LEVELS[:, None], expected[None]))
    assert 0.5 * np.abs(histogram(draws) - expected).sum() < 0.03


def test_draws_of_three_channels_follow_the_conditionals():
    parameters = np.float32([0, -0.2, 0.1, 0.0, -2, -3, -3, 1.5, -0.8, 0.6])  # one component
    draws = sample_discretized_logistic_mixture(
        np.tile(parameters, (20_000, 1)), 3, temperature=1.0, seed=tf.constant((7, 0))
    )
    red, green, blue = (draws.numpy() / 127.5 - 1).T
    inside = np.abs(red) < 0.9  # away from the clipped edges
    slopes = [
        np.polyfit(red[inside], green[inside], 1)[0],
        np.linalg.lstsq(np.stack((red, green, np.ones_like(red)), 1), blue, rcond=None)[0],
    ]
    np.testing.assert_allclose(slopes[0], np.tanh(1.5), atol=0.02)
    np.testing.assert_allclose(slopes[1], [np.tanh(-0.8), np.tanh(0.6), 0.0], atol=0.03)


def test_parameter_counts_are_those_of_the_paper():
    assert parameter_count(1, 10) == 30
    assert parameter_count(3, 10) == 100
