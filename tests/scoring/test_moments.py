"""Other moments for the batch normalisations of ours and of brought models, against Keras and NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from brought import trained_brought_model

from tfbnood.data import load
from tfbnood.errors import StatisticError
from tfbnood.models import VAE, PixelCNN, RealNVP
from tfbnood.scoring.conditional import MixedMomentsLogProb, frozen_log_prob
from tfbnood.scoring.moments import image_moments, log_prob_with_mixed_moments
from tfbnood.scoring.rules import batch_normalizations


@keras.saving.register_keras_serializable(package="tests")
class FunctionalModel(keras.Model):
    """A brought model around a functional one: channels first, no scale or no offset, and dense batch normalisation."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        inputs = keras.Input((8, 8, 1))
        hidden = keras.layers.Permute((3, 1, 2))(keras.layers.Conv2D(3, 3)(inputs))
        hidden = keras.layers.BatchNormalization(axis=1, scale=False)(hidden)
        hidden = keras.layers.Dropout(0.5)(keras.layers.Flatten()(hidden))
        hidden = keras.layers.BatchNormalization(center=False)(keras.layers.Dense(4)(hidden))
        self.network = keras.Model(inputs, hidden)

    def log_prob(self, images, training=False):
        outputs = self.network(tf.cast(images, tf.float32) / 255, training=training)
        return -tf.reduce_sum(outputs**2, axis=-1)


def small_models():
    shape = (8, 8, 1)
    return {
        "realnvp": lambda: RealNVP(shape, channels=4, blocks=1),
        "vae": lambda: VAE(shape, channels=4, latents=3, bottleneck=8, head=8),
        "pixelcnn": lambda: PixelCNN(shape, filters=4, blocks=1, mixtures=2),
        "brought": lambda: trained_brought_model(load("digits").train),
        "functional": FunctionalModel,
    }


@pytest.fixture(scope="module", params=small_models())
def model(request):
    model = small_models()[request.param]()
    model.log_prob(load("digits").test[:2])
    random = np.random.default_rng(0)
    # Away from the initial state, in which many outputs do not depend on the moments.
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * random.normal(size=variable.shape))
    for norm in batch_normalizations(model):
        norm.moving_mean.assign(random.normal(size=norm.moving_mean.shape))
        norm.moving_variance.assign(random.uniform(0.5, 2, norm.moving_variance.shape))
    return model


def equal_weights(count):
    return np.full(count, 1 / count, np.float32)


def without_dropout(model, monkeypatch):
    """Our models have none when scoring; the functional one does, and moment mixing never switches it on."""
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            monkeypatch.setattr(layer, "rate", 0.0)


def test_ratio_0_is_evaluation_mode_and_ratio_1_training_mode(model, digits, monkeypatch):
    without_dropout(model, monkeypatch)
    images = digits.test[:16]
    mixed, frozen = log_prob_with_mixed_moments(model), frozen_log_prob(model)
    values = {
        ratio: mixed(images, equal_weights(16), tf.constant(ratio)).numpy() for ratio in (0.0, 1.0)
    }
    np.testing.assert_allclose(values[0.0], frozen(images, False), rtol=1e-5)
    np.testing.assert_allclose(values[1.0], frozen(images, True), rtol=1e-5)
    assert not np.allclose(values[0.0], values[1.0], rtol=1e-3)


def test_moment_mixing_leaves_the_model_as_it_was(model, digits):
    before = [variable.numpy() for variable in model.variables]
    log_prob_with_mixed_moments(model)(digits.test[:16], equal_weights(16), tf.constant(0.5))
    image_moments(model)(digits.test[:16])
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())
    for norm in batch_normalizations(model):
        assert "call" not in vars(norm)


def test_a_failing_trace_leaves_the_model_as_it_was(digits):
    model = trained_brought_model(digits.train)
    with pytest.raises(Exception, match="shape"):
        image_moments(model)(np.zeros((2, 8), np.uint8))
    assert all("call" not in vars(norm) for norm in batch_normalizations(model))


def test_rows_without_weight_do_not_count(model, digits):
    mixed, ratio = log_prob_with_mixed_moments(model), tf.constant(0.7)
    weights = np.array([0.25] * 4 + [0] * 12, np.float32)
    one, other = (
        mixed(np.concatenate([digits.test[:4], filling]), weights, ratio)
        for filling in (digits.test[4:16], 255 - digits.test[4:16])
    )
    np.testing.assert_allclose(one[:4], other[:4], rtol=1e-4)


def test_mixed_moments_are_those_of_a_batch_with_that_share_of_test_images(digits):
    # One layer, whose moving moments are exactly those of the companions: mixing samples is mixing moments.
    model = trained_brought_model(digits.train)
    test, others = digits.test[:6], digits.train[:18]
    above = np.pad(others[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0))) / 64.0
    model.norm.moving_mean.assign([above.mean()])
    model.norm.moving_variance.assign([above.var()])
    samples = frozen_log_prob(model)(np.concatenate([test, others]), True)[:6]
    moments = log_prob_with_mixed_moments(model)(test, equal_weights(6), tf.constant(0.25))
    np.testing.assert_allclose(moments, samples, rtol=1e-5)


def test_image_moments_are_a_few_lines_of_numpy(digits):
    model = trained_brought_model(digits.train)
    images = digits.test[:7]
    log_prob, (moments, quarters) = image_moments(model)(images)
    np.testing.assert_allclose(log_prob, frozen_log_prob(model)(images, False), rtol=1e-5)
    above = np.pad(images[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0))) / 64.0
    mean, variance = (
        float(value[0]) for value in (model.norm.moving_mean, model.norm.moving_variance)
    )
    expected = np.stack(
        [
            (above.mean(axis=(1, 2, 3)) - mean) / np.sqrt(variance + 1e-5),
            np.log((above.var(axis=(1, 2, 3)) + 1e-5) / (variance + 1e-5)),
        ],
        axis=1,
    )
    np.testing.assert_allclose(moments, expected, rtol=1e-4, atol=1e-5)
    lower_left = above[:, 4:, :4]
    expected = (lower_left.mean(axis=(1, 2, 3)) - mean) / np.sqrt(variance + 1e-5)
    assert quarters.shape == (7, 4 * 2)
    np.testing.assert_allclose(quarters[:, 4], expected, rtol=1e-4, atol=1e-5)


def test_dense_normalisations_have_means_only(digits):
    model = FunctionalModel()
    _, (moments, quarters) = image_moments(model)(digits.test[:3])
    assert moments.shape == (3, 2 * 3 + 4)  # mean and variance of three maps, mean of four units
    assert quarters.shape == (3, 4 * 2 * 3 + 4)


@pytest.fixture(scope="module")
def brought(digits):
    return trained_brought_model(digits.train)


def test_a_request_smaller_than_the_batch_counts_by_itself(brought, digits):
    small, exact = (MixedMomentsLogProb(brought, batch_size=size) for size in (16, 5))
    images = digits.test[:5]
    np.testing.assert_allclose(small(images, ratio=0.9), exact(images, ratio=0.9), rtol=1e-5)


def test_every_image_is_scored_and_one_compilation_is_enough(brought, digits):
    mixed = MixedMomentsLogProb(brought, batch_size=16)
    for count in (1, 16, 37):
        for ratio in (0.0, 0.5, 1.0):
            values = mixed(digits.test[:count], ratio=ratio)
            assert values.shape == (count,)
            assert np.isfinite(values).all()
    assert mixed._compiled.experimental_get_tracing_count() == 1


def test_ratio_0_does_not_depend_on_companions(brought, digits):
    mixed = MixedMomentsLogProb(brought, batch_size=16)
    expected = frozen_log_prob(brought)(digits.test[:37], False)
    np.testing.assert_allclose(mixed(digits.test[:37], ratio=0.0), expected, rtol=1e-5)


def test_draws_and_seeds_choose_companions(brought, digits):
    mixed = MixedMomentsLogProb(brought, batch_size=16)
    images = digits.test[:40]
    one, again, other = (mixed(images, ratio=0.9, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    many, more = (mixed(images, ratio=0.9, draws=20, seed=seed) for seed in (0, 1))
    assert np.abs(many - more).mean() < np.abs(one - other).mean() / 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ratio": 1.5}, r"ratio must lie in \[0, 1\]"),
        ({"ratio": 0.5, "draws": 0}, "draws must be at least 1"),
    ],
)
def test_arguments_out_of_range_are_refused(brought, digits, arguments, message):
    with pytest.raises(StatisticError, match=message):
        MixedMomentsLogProb(brought)(digits.test[:3], **arguments)
    with pytest.raises(StatisticError, match="batch_size must be at least 1"):
        MixedMomentsLogProb(brought, batch_size=0)
