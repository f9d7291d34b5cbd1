"""What is special to the VAE; what every model must do is in the contract suite."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.datasets import load_digits

from tfbnood.errors import DataError
from tfbnood.models.noise import scoring_noise
from tfbnood.models.vae import LOG_VARIANCE_BOUND, VAE

SHAPES = [(8, 8, 1), (8, 12, 3)]


def small_vae(image_shape=(8, 8, 1), **kwargs) -> VAE:
    sizes = {"channels": 4, "latents": 3, "bottleneck": 8, "head": 6}
    model = VAE(image_shape, **{**sizes, **kwargs})
    model.compile()
    # Larger weights, so that posterior and image depend on their inputs as in a trained model.
    for layer in (*model.inference.layers, *model.generator.layers):
        if hasattr(layer, "kernel"):
            layer.kernel.assign(1.5 * layer.kernel)
    return model


def random_images(image_shape=(8, 8, 1), count=5, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *image_shape)).astype(np.uint8)


def ignore_latents(model: VAE) -> None:
    """Cuts z off from the image, so that p(x) = p(x | z) is known exactly."""
    dense = first_of(model.generator, keras.layers.Dense)
    dense.kernel.assign(tf.zeros_like(dense.kernel))
    # Not 0 as well: every pixel value would be equally likely, and every image.
    dense.bias.assign(np.random.default_rng(1).normal(size=dense.bias.shape))


def first_of(network: keras.Sequential, kind: type) -> keras.layers.Layer:
    return next(layer for layer in network.layers if isinstance(layer, kind))


def posterior_moments(model: VAE, images: np.ndarray, training=False):
    """Mean and standard deviation of q(z | x) by NumPy from what the inference network says."""
    with keras.StatelessScope():
        moments = model.inference(images.astype(np.float32) / 127.5 - 1, training=training).numpy()
    mean, raw = np.split(moments.astype(np.float64), 2, axis=1)
    return mean, np.exp(LOG_VARIANCE_BOUND * np.tanh(raw / LOG_VARIANCE_BOUND) / 2)


def divergence(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    return 0.5 * (mean**2 + std**2 - 1 - np.log(std**2)).sum(axis=1)


def decoder_logits(model: VAE, latents: np.ndarray, training=False) -> np.ndarray:
    with keras.StatelessScope():
        outputs = model.generator(latents.astype(np.float32), training=training).numpy()
    return outputs.reshape(len(latents), *model.image_shape, 256).astype(np.float64)


def log_likelihood(model: VAE, images: np.ndarray, latents: np.ndarray, training=False):
    log_probabilities = log_softmax(decoder_logits(model, latents, training), axis=-1)
    chosen = np.take_along_axis(log_probabilities, images[..., None].astype(int), axis=-1)
    return chosen.sum(axis=(1, 2, 3, 4))


def latent_draw(model: VAE, noise) -> np.ndarray:
    return noise.normal(1, (model.latents,)).numpy()


def graph_bound(model: VAE, images: np.ndarray, samples: int):
    """The importance-weighted bound as a function of the seed, compiled once."""
    return tf.function(lambda seed: model.importance_weighted_log_prob(images, samples, seed=seed))


def mean_bound(model: VAE, images: np.ndarray, samples: int, repeats: int) -> np.ndarray:
    bound = graph_bound(model, images, samples)
    return np.mean([bound(tf.constant(seed)) for seed in range(repeats)], axis=0)


@pytest.mark.parametrize("image_shape", SHAPES)
@pytest.mark.parametrize("training", [False, True])
def test_log_prob_is_the_elbo_computed_by_numpy(image_shape, training):
    model, images = small_vae(image_shape), random_images(image_shape)
    mean, std = posterior_moments(model, images, training)
    latents = mean + std * latent_draw(model, scoring_noise(7))
    expected = log_likelihood(model, images, latents, training) - divergence(mean, std)
    found = model.log_prob(images, training, seed=7)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_divergence_is_all_that_is_lost_when_the_decoder_ignores_the_latents():
    model, images = small_vae(), random_images()
    ignore_latents(model)
    exact = log_likelihood(model, images, np.zeros((5, 3)))
    assert exact.std() > 1
    lost = divergence(*posterior_moments(model, images))
    assert lost.min() > 0.01
    np.testing.assert_allclose(exact - model.log_prob(images), lost, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("training", [False, True])
def test_the_importance_weighted_bound_is_the_one_computed_by_numpy(training):
    model, images = small_vae((8, 12, 3)), random_images((8, 12, 3))
    mean, std = posterior_moments(model, images, training)
    log_weights = []
    for index in range(4):
        draw = latent_draw(model, scoring_noise(3).fold(index))
        latents = mean + std * draw
        # The constants ½·log 2π of prior and posterior cancel.
        log_ratio = (0.5 * draw**2 + np.log(std) - 0.5 * latents**2).sum(axis=1)
        log_weights.append(log_likelihood(model, images, latents, training) + log_ratio)
    expected = logsumexp(log_weights, axis=0) - np.log(4)
    found = model.importance_weighted_log_prob(images, 4, training, seed=3)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_one_importance_sample_is_the_elbo_in_expectation():
    model, images = small_vae(), random_images()
    elbo = tf.function(lambda seed: model.log_prob(images, seed=seed))
    elbos = np.array([elbo(tf.constant(seed)) for seed in range(60)])
    bound = graph_bound(model, images, 1)
    bounds = np.array([bound(tf.constant(seed)) for seed in range(60)])
    standard_error = np.sqrt((elbos.var(axis=0) + bounds.var(axis=0)) / 60)
    assert (np.abs(bounds.mean(axis=0) - elbos.mean(axis=0)) < 4 * standard_error).all()


def test_the_bound_rises_with_the_samples_towards_the_exact_log_likelihood():
    model, images = small_vae(), random_images()
    ignore_latents(model)
    exact = log_likelihood(model, images, np.zeros((5, 3)))
    # A posterior off the prior: with nothing to encode, all of its divergence is slack. It is wider
    # than the prior, so that importance weights are bounded and their mean settles soon.
    mean, log_variance = np.array([0.7, -0.7, 0.7]), 0.5
    dense = first_of(model.inference, keras.layers.Dense)
    dense.kernel.assign(tf.zeros_like(dense.kernel))
    dense.bias.assign([*mean, *[log_variance] * 3])
    draws = np.random.default_rng(0).normal(size=(20_000, 100, 3))
    latents = mean + np.exp(log_variance / 2) * draws
    log_weights = 0.5 * (draws**2 + log_variance - latents**2).sum(axis=2)
    repeats, previous = 40, np.inf
    for samples in (1, 4, 100):
        simulated = np.log(samples) - logsumexp(log_weights[:, :samples], axis=1)
        assert 0 < simulated.mean() < previous
        previous = simulated.mean()
        slack = exact - mean_bound(model, images, samples, repeats)
        four_errors = 4 * simulated.std() / np.sqrt(repeats)
        np.testing.assert_allclose(slack, simulated.mean(), atol=four_errors)
    assert four_errors < 0.1


def test_scoring_uses_the_importance_samples_of_the_constructor():
    model, images = small_vae(importance_samples=4), random_images()
    expected = model.importance_weighted_log_prob(images, 4, seed=5)
    np.testing.assert_array_equal(model.log_prob(images, seed=5), expected)
    assert VAE.from_config(model.get_config()).importance_samples == 4


@pytest.mark.parametrize("samples", [0, -1])
def test_a_bound_without_samples_is_refused(samples):
    with pytest.raises(DataError, match=f"samples must be at least 1. Received: .*={samples}"):
        small_vae().importance_weighted_log_prob(random_images(), samples)
    with pytest.raises(DataError, match="importance_samples must be at least 1"):
        small_vae(importance_samples=samples)


@pytest.mark.parametrize("image_shape", SHAPES)
def test_the_decoder_s_probabilities_sum_to_one(image_shape):
    # Summed through the likelihood: one image for every value of the first pixel.
    model = small_vae(image_shape)
    images = np.repeat(random_images(image_shape, 1), 256, axis=0)
    images[:, 0, 0, 0] = np.arange(256)
    latents = tf.zeros((256, model.latents))
    joint = model._log_likelihood(tf.cast(images, tf.float32), latents, False).numpy()
    logits = model._logits(latents[:1], False)[0]
    rest = np.take_along_axis(log_softmax(logits, axis=-1), images[0][..., None].astype(int), -1)
    np.testing.assert_allclose(logsumexp(joint), rest.sum() - rest[0, 0, 0, 0], rtol=1e-5)


@pytest.mark.parametrize("image_shape", [(8, 10, 1), (6, 8, 3), (28, 27, 1)])
def test_sides_that_four_does_not_divide_are_refused(image_shape):
    with pytest.raises(DataError, match="divisible by 4"):
        small_vae(image_shape)


def test_the_networks_are_those_of_the_papers_table():
    model = VAE.from_preset("paper-grey")

    def kernels(network):
        weighted = (layer for layer in network.layers if hasattr(layer, "kernel"))
        return [(type(layer).__name__, *layer.kernel.shape) for layer in weighted]

    assert kernels(model.inference) == [
        ("Conv2D", 5, 5, 1, 32),
        ("Conv2D", 5, 5, 32, 32),
        ("Conv2D", 5, 5, 32, 32),
        ("Conv2D", 5, 5, 32, 64),
        ("Conv2D", 5, 5, 64, 64),
        ("Conv2D", 7, 7, 64, 256),
        ("Dense", 256, 2 * 64),
    ]
    # Keras writes the kernel of a transposed convolution with the outputs first.
    assert kernels(model.generator) == [
        ("Dense", 64, 7 * 7 * 64),
        ("Conv2DTranspose", 5, 5, 64, 64),
        ("Conv2D", 5, 5, 64, 64),
        ("Conv2DTranspose", 5, 5, 32, 64),
        ("Conv2D", 5, 5, 32, 32),
        ("Conv2D", 5, 5, 32, 32),
        ("Conv2D", 5, 5, 32, 256),
        ("Conv2D", 1, 1, 256, 256),
    ]


def test_every_batch_normalisation_is_told_the_mode():
    model = small_vae()
    norms = [
        layer
        for network in (model.inference, model.generator)
        for layer in network.layers
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    assert len(norms) == 6 + 5
    before = [norm.moving_mean.numpy() for norm in norms]
    model(random_images(), training=True)
    assert all(
        (norm.moving_mean.numpy() != old).any() for norm, old in zip(norms, before, strict=True)
    )


def test_scoring_leaves_every_variable_bit_identical():
    model, images = small_vae(importance_samples=2), random_images()
    before = [variable.numpy() for variable in model.variables]
    for training in (False, True):
        model.log_prob(images, training)
        model.importance_weighted_log_prob(images, 3, training)
        model.bits_per_dim(images, training)
    model.reconstruct(images)
    model.sample(2, seed=0)
    for variable, old in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


@pytest.mark.parametrize("image_shape", SHAPES)
def test_reconstruct_is_the_expected_pixel_at_the_posterior_mean(image_shape):
    model, images = small_vae(image_shape), random_images(image_shape)
    mean, _ = posterior_moments(model, images)
    expected = softmax(decoder_logits(model, mean), axis=-1) @ np.arange(256)
    found = model.reconstruct(images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    # In batches that do not fill up, too.
    np.testing.assert_allclose(model.reconstruct(images, batch_size=3), expected, rtol=1e-4)


def test_a_sample_is_a_function_of_seed_and_temperature():
    model = small_vae()
    images = model.sample(3, seed=1)
    np.testing.assert_array_equal(model.sample(3, seed=1), images)
    assert (model.sample(3, seed=2) != images).any()
    assert (model.sample(3, temperature=3.0, seed=1) != images).any()


def test_temperature_scales_the_latents_only():
    model = small_vae()
    ignore_latents(model)
    np.testing.assert_array_equal(
        model.sample(3, temperature=0.5, seed=1), model.sample(3, temperature=2.0, seed=1)
    )


def test_samples_follow_the_categorical():
    model = small_vae()
    output = model.generator.layers[-1]
    output.kernel.assign(tf.zeros_like(output.kernel))
    probabilities = np.full(256, 1e-12)
    probabilities[[0, 200, 255]] = 0.2, 0.5, 0.3
    output.bias.assign(np.log(probabilities))
    counts = np.bincount(model.sample(64, seed=0).ravel(), minlength=256)
    assert counts.sum() == counts[[0, 200, 255]].sum() == 64 * 64
    # Four standard errors of a share of 0.5 among 4096 pixels.
    np.testing.assert_allclose(counts / 4096, probabilities, atol=4 * 0.5 / 64)


@pytest.fixture
def calls(monkeypatch):
    """Returns a function that makes a model count how often each of its networks runs."""

    def watch(model: VAE) -> dict[str, int]:
        counts = {"inference": 0, "generator": 0}
        for name in counts:
            original = getattr(model, name).call

            @functools.wraps(original)
            def counted(*args, name=name, original=original, **kwargs):
                counts[name] += 1
                return original(*args, **kwargs)

            monkeypatch.setattr(getattr(model, name), "call", counted)
        return counts

    return watch


def test_both_networks_run_once_a_pass(calls):
    model, images = small_vae(), random_images()
    counts = calls(model)
    model.log_prob(images)
    assert counts == {"inference": 1, "generator": 1}
    model(images, training=True)
    assert counts == {"inference": 2, "generator": 2}


def test_an_importance_weighted_pass_encodes_once_and_traces_the_generator_once(calls):
    model, images = small_vae(), random_images()
    counts = calls(model)
    graph_bound(model, images, 20)(tf.constant(0))
    assert counts == {"inference": 1, "generator": 1}


def test_a_training_step_uses_the_elbo_whatever_the_importance_samples(calls):
    model = small_vae(importance_samples=5)
    counts = calls(model)
    model(random_images(), training=True)
    assert counts == {"inference": 1, "generator": 1}


@pytest.mark.parametrize("bias", [-1e6, 1e6])
def test_an_extreme_log_variance_stays_finite(bias):
    model = small_vae()
    dense = first_of(model.inference, keras.layers.Dense)
    dense.bias.assign([0.0] * 3 + [bias] * 3)
    assert np.isfinite(model.log_prob(random_images())).all()
    assert np.isfinite(model.importance_weighted_log_prob(random_images(), 3)).all()


def test_a_few_steps_on_real_digits_reduce_the_loss():
    digits = (load_digits().images[:1024, ..., None] * (255 / 16)).round().astype(np.uint8)
    model = VAE.from_preset("tiny")
    before = model.bits_per_dim(digits[:256], training=True).mean()
    history = model.fit(digits, epochs=3, verbose=0).history["bits_per_dim"]
    assert before > history[0] > history[1] > history[2]
    assert model.bits_per_dim(digits[:256]).mean() < before - 1
