import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood.models.layers import BatchNormalization, ResidualBlock, WeightNormConv2D

INPUTS = np.random.default_rng(0).normal(3.0, 2.0, (5, 4, 4, 3)).astype(np.float32)


def test_batch_normalisation_in_training_mode_is_a_numpy_line_with_biased_variance():
    layer = BatchNormalization()
    layer.build(INPUTS.shape)
    outputs = layer(INPUTS, training=True)
    mean, variance = INPUTS.mean(axis=(0, 1, 2)), INPUTS.var(axis=(0, 1, 2))
    np.testing.assert_allclose(outputs, (INPUTS - mean) / np.sqrt(variance + 1e-5), atol=1e-4)
    np.testing.assert_allclose(layer.moving_mean, 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, 0.9 + 0.1 * variance, rtol=1e-5)


def test_batch_normalisation_in_evaluation_mode_uses_the_moving_moments():
    layer = BatchNormalization()
    layer.build(INPUTS.shape)
    layer.moving_mean.assign([1.0, 2.0, 3.0])
    layer.moving_variance.assign([4.0, 5.0, 6.0])
    expected = (INPUTS - [1.0, 2.0, 3.0]) / np.sqrt(np.array([4.0, 5.0, 6.0]) + 1e-5)
    np.testing.assert_allclose(layer(INPUTS, training=False), expected, rtol=1e-4)


def test_low_variance_channels_are_not_damped():
    layer = BatchNormalization()
    layer.build(INPUTS.shape)
    outputs = layer(1e-2 * INPUTS, training=True).numpy()  # variance 4e-4
    np.testing.assert_allclose(outputs.std(axis=(0, 1, 2)), 1.0, atol=0.02)


def test_weight_normalised_kernels_have_the_norm_of_their_gain():
    layer = WeightNormConv2D(6, 3, seed=1)
    layer.build(INPUTS.shape)
    layer.gain.assign(np.arange(1.0, 7.0))
    impulse = np.zeros((1, 5, 5, 3), np.float32)
    norms = np.zeros(6)
    for channel in range(3):
        impulse[:] = 0
        impulse[0, 2, 2, channel] = 1
        norms += (layer(impulse).numpy() ** 2).sum(axis=(0, 1, 2))
    np.testing.assert_allclose(np.sqrt(norms), np.arange(1.0, 7.0), rtol=1e-5)


def test_a_zero_gain_starts_at_zero_and_still_learns():
    layer = WeightNormConv2D(2, 1, zero_gain=True)
    with tf.GradientTape() as tape:
        outputs = layer(INPUTS)
        loss = tf.reduce_sum((outputs - 1.0) ** 2)
    assert (outputs.numpy() == 0).all()
    assert (np.abs(tape.gradient(loss, layer.gain.value)) > 0).all()


def test_a_residual_block_hands_training_on():
    block = ResidualBlock(3)
    moving = block(INPUTS, training=False)
    with keras.StatelessScope():
        batch = block(INPUTS, training=True)
    assert np.abs(moving - batch).max() > 1e-2


def test_layers_come_back_from_their_configuration():
    for layer in (
        BatchNormalization(),
        WeightNormConv2D(4, 3, seed=7),
        ResidualBlock(3, seeds=(5, 6)),
    ):
        again = type(layer).from_config(layer.get_config())
        np.testing.assert_array_equal(layer(INPUTS), again(INPUTS))


@pytest.mark.parametrize("trainable", [True, False])
def test_training_mode_is_that_of_keras_values_gradients_and_moving_moments(trainable):
    random = np.random.default_rng(0)
    inputs = tf.constant(3 + 2 * random.normal(size=(4, 5, 6, 3)), tf.float32)
    target = tf.constant(random.normal(size=(4, 5, 6, 3)), tf.float32)
    found = []
    for kind in (BatchNormalization, keras.layers.BatchNormalization):
        layer = kind(momentum=0.9, epsilon=1e-5)
        layer.build(inputs.shape)
        layer.gamma.assign([0.5, 1.0, 2.0])
        layer.trainable = trainable
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=True)
            loss = tf.reduce_sum(target * outputs**2)
        gradient = tape.gradient(loss, inputs)
        found.append((outputs, gradient, layer.moving_mean.numpy(), layer.moving_variance.numpy()))
    for own, expected in zip(*found, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-4)
    assert (found[0][2] != 0).all() == trainable


@pytest.mark.parametrize("shape", [(6, 3), (4, 7, 3)])
def test_training_mode_of_other_ranks_is_that_of_keras(shape):
    inputs = tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)
    own, expected = (
        kind(momentum=0.9, epsilon=1e-5)(inputs, training=True)
        for kind in (BatchNormalization, keras.layers.BatchNormalization)
    )
    np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)
