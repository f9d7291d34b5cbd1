"""What is special to PixelCNN++; what all models share is in the contract suite."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from tfbnood.errors import DataError
from tfbnood.models.logistic_mixture import discretized_logistic_mixture_log_prob
from tfbnood.models.noise import scoring_noise, training_noise
from tfbnood.models.pixelcnn import STRIP, GatedBlock, PixelCNN, _Context

SHAPES = [(8, 8, 1), (8, 12, 3)]


def make(image_shape=(8, 8, 1), dropout=0.5, seed=0):
    """A small model whose every weight was moved, so that nothing is zero or one by initialisation."""
    model = PixelCNN(
        image_shape=image_shape, filters=6, blocks=1, mixtures=3, dropout=dropout, seed=seed
    )
    rng = np.random.default_rng(seed)
    for variable in model.variables:
        moved = variable.numpy() + 0.2 * rng.normal(size=variable.shape)
        variable.assign(np.abs(moved) if "variance" in variable.path else moved)
    return model


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture(scope="module")
def models(model):
    return {(8, 8, 1): model, (8, 12, 3): make((8, 12, 3))}


def images_of(shape, count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape)).astype(np.uint8)


def parameters_of(model, images, training=False):
    with keras.StatelessScope():
        images = tf.cast(images, tf.float32)
        return model._parameters(images, _Context(training, scoring_noise(0)))


def values_of(model):
    return [variable.numpy() for variable in model.variables]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pixel_depends_on_earlier_pixels_and_on_no_other(models, shape):
    height, width, channels = shape
    pixels = height * width
    one = images_of(shape, 1).reshape(1, pixels, channels)
    # Row i + 1 of the batch is the image with pixel i changed.
    changed = np.repeat(one, pixels + 1, axis=0)
    changed[np.arange(1, pixels + 1), np.arange(pixels)] += 128
    outputs = parameters_of(models[shape], changed.reshape(-1, *shape)).numpy()
    outputs = outputs.reshape(pixels + 1, pixels, -1)
    effect = np.abs(outputs[1:] - outputs[:1]).max(axis=-1)  # [changed pixel, pixel]
    effect /= np.abs(outputs).max()
    later = np.triu(np.ones((pixels, pixels), bool), k=1)
    # Not 0: rows of a batch are rounded differently. The gradient below is exactly 0.
    assert effect[~later].max() < 1e-5
    assert (effect[later] > 1e-5).mean() > 0.9


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_reach_back_to_earlier_pixels_only(models, shape):
    height, width, _ = shape
    images = tf.constant(images_of(shape, 1), tf.float32)

    @tf.function
    def gradient(pixel):
        with tf.GradientTape() as tape:
            tape.watch(images)
            outputs = parameters_of(models[shape], images)
            weights = tf.cos(tf.range(outputs.shape[-1], dtype=tf.float32))
            here = tf.reduce_sum(
                tf.gather(tf.reshape(outputs, (height * width, -1)), pixel) * weights
            )
        return tape.gradient(here, images)

    for pixel in range(1, height * width, 7):
        effect = np.abs(gradient(tf.constant(pixel))).max(axis=-1).ravel()
        assert (effect[pixel:] == 0).all()
        assert (effect[:pixel] > 0).mean() > 0.8  # a far corner is out of one block's reach
        row, column = divmod(pixel, width)
        if row > 0 and 0 < column < width - 1:  # no blind spot next to the pixel
            assert (effect[pixel - width - 1 : pixel - width + 2] > 0).all()
            assert effect[pixel - 1] > 0


def test_moments_of_the_batch_let_a_pixel_see_later_ones(model):
    """The hole in the paper's Proposition 1: in training mode the conditionals are not causal."""
    images = images_of((8, 8, 1), 4)
    changed = images.copy()
    changed[:, -1, -1] += 128
    for training in (False, True):
        first, second = (
            parameters_of(model, batch, training).numpy()[:, 0, 0] for batch in (images, changed)
        )
        assert (np.abs(first - second).max() > 1e-4) == training


def test_probabilities_of_a_pixel_sum_to_one_in_evaluation_mode(model):
    images = np.repeat(images_of((8, 8, 1), 1), 256, axis=0)
    images[:, 3, 4, 0] = np.arange(256)
    parameters = parameters_of(model, images)
    each = discretized_logistic_mixture_log_prob(tf.cast(images, tf.float32), parameters).numpy()
    np.testing.assert_allclose(each.sum(axis=(1, 2)), model.log_prob(images), rtol=1e-5)
    np.testing.assert_allclose(np.exp(each[:, 3, 4]).sum(), 1.0, atol=1e-4)


@pytest.mark.parametrize("training", [False, True])
def test_scoring_leaves_every_variable_bit_identical(model, training):
    before = values_of(model)
    model.log_prob(images_of((8, 8, 1), 5), training=training)
    for old, new in zip(before, values_of(model), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_training_flag_changes_the_score(model):
    images = images_of((8, 8, 1), 5)
    difference = model.log_prob(images) - model.log_prob(images, training=True)
    assert np.abs(difference).min() > 1e-2


@pytest.mark.parametrize("training", [False, True])
def test_scoring_drops_nothing(model, training):
    images = images_of((8, 8, 1), 5)
    without = PixelCNN(image_shape=(8, 8, 1), filters=6, blocks=1, mixtures=3, dropout=0.0)
    without.set_weights(model.get_weights())
    first = model.log_prob(images, training=training)
    np.testing.assert_array_equal(first, model.log_prob(images, training=training))
    np.testing.assert_array_equal(first, without.log_prob(images, training=training))


def test_a_step_of_fit_drops_channels_as_a_function_of_seed_and_step(model):
    images = tf.cast(images_of((8, 8, 1), 5), tf.float32)

    def in_step(step):
        with keras.StatelessScope():
            return model._log_prob(images, True, training_noise(0, step)).numpy()

    scored = model.log_prob(images, training=True)
    assert np.abs(in_step(0) - scored).min() > 1e-2
    np.testing.assert_array_equal(in_step(0), in_step(0))
    assert np.abs(in_step(0) - in_step(1)).min() > 1e-2


@pytest.mark.parametrize("training", [False, True])
def test_every_block_runs_once_a_pass(model, training, monkeypatch):
    calls = []
    original = GatedBlock.call

    def counting(self, *args, **kwargs):
        calls.append(id(self))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(GatedBlock, "call", counting)
    model.log_prob(images_of((8, 8, 1), 2), training=training)
    assert sorted(calls) == sorted(map(id, model.down_blocks + model.up_blocks))


def test_batch_normalisation_follows_every_shifted_convolution_and_nothing_else(model):
    layers = model._flatten_layers()
    norms = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
    # 16 blocks of two; three inputs; two streams twice down and twice up.
    assert len(norms) == 16 * 2 + 3 + 4 + 4


def test_a_few_epochs_on_digits_reduce_the_loss():
    digits = (load_digits().images[..., None] * (255 / 16)).astype(np.uint8)
    model = PixelCNN.from_preset("tiny")
    before = model.bits_per_dim(digits[-128:]).mean()
    model.fit(digits[:1024], epochs=2, verbose=0)
    after = model.bits_per_dim(digits[-128:]).mean()
    assert after < before - 0.4


@pytest.mark.parametrize("shape", SHAPES)
def test_strips_that_hand_on_rows_equal_the_whole_image(models, shape):
    """What sampling rests on."""
    model = models[shape]
    images = tf.cast(images_of(shape, 2), tf.float32)
    whole = _Context(False, scoring_noise(0))
    expected = model._parameters(images, whole)
    rows, parts = None, []
    for top in range(0, shape[0], STRIP):
        strip = _Context(False, scoring_noise(0), rows_above=rows)
        parts.append(model._parameters(images[:, top : top + STRIP], strip))
        rows = iter(strip.last_rows)
    np.testing.assert_allclose(tf.concat(parts, axis=1), expected, rtol=1e-4, atol=1e-4)


def test_samples_are_a_function_of_seed_and_temperature(models):
    model = models[8, 12, 3]
    samples = model.sample(3, seed=1)
    assert samples.shape == (3, 8, 12, 3)
    assert samples.dtype == np.uint8
    np.testing.assert_array_equal(samples, model.sample(3, seed=1))
    assert (samples != model.sample(3, seed=2)).mean() > 0.5
    assert (samples != model.sample(3, seed=1, temperature=0.1)).mean() > 0.05
    assert model._draw_pixel.experimental_get_tracing_count() == 1


def test_samples_of_a_known_mixture_have_its_statistics():
    model = PixelCNN(image_shape=(8, 8, 1), filters=4, blocks=1, mixtures=2)
    # Logits, means, log-scales: a quarter dark, three quarters bright, both narrow.
    bias = np.float32([0.0, np.log(3), -0.6, 0.6, -5, -5])
    head = model.parameter_head
    head.set_weights([np.zeros_like(head.get_weights()[0]), bias])
    for temperature, share in ((1.0, 0.75), (0.5, 0.9)):  # 3² / (1 + 3²)
        samples = model.sample(32, seed=3, temperature=temperature).astype(int)
        bright = samples > 127
        assert abs(bright.mean() - share) < 0.04
        assert abs(samples[bright].mean() - 204) < 1
        assert abs(samples[~bright].mean() - 51) < 1
        # A logistic of scale s has standard deviation π s / √3, whatever the temperature.
        expected = np.pi / np.sqrt(3) * np.exp(-5) * 127.5
        assert abs(samples[bright].std() - expected) < 0.2


def test_a_sample_is_likely_under_the_model_that_drew_it(model):
    samples = model.sample(8, seed=4)
    noise = images_of((8, 8, 1), 8)
    assert model.log_prob(samples).numpy().mean() > model.log_prob(noise).numpy().mean() + 10


def test_a_saved_model_scores_bit_identically(models, tmp_path):
    model = models[8, 12, 3]
    images = images_of((8, 12, 3), 4)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    for training in (False, True):
        np.testing.assert_array_equal(
            loaded.log_prob(images, training=training), model.log_prob(images, training=training)
        )


def test_initial_weights_are_a_function_of_the_seed():
    first, second, other = (
        PixelCNN(image_shape=(8, 8, 1), filters=4, blocks=1, mixtures=2, seed=seed)
        for seed in (1, 1, 2)
    )
    for old, new in zip(values_of(first), values_of(second), strict=True):
        np.testing.assert_array_equal(old, new)
    assert any(
        not np.array_equal(*pair) for pair in zip(values_of(first), values_of(other), strict=True)
    )


@pytest.mark.parametrize("shape", [(6, 8, 1), (8, 10, 1), (8, 8, 2), (8, 8)])
def test_a_wrong_image_shape_is_a_data_error(shape):
    with pytest.raises(DataError, match=r"divisible by 4 .*Received: image_shape="):
        PixelCNN(image_shape=shape, filters=4, blocks=1)


def test_a_wrong_dropout_is_a_data_error():
    with pytest.raises(DataError, match="dropout=1"):
        PixelCNN(image_shape=(8, 8, 1), filters=4, blocks=1, dropout=1)
