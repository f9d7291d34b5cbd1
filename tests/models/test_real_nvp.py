"""What is special to RealNVP; the contract that all models share is in test_contract.py."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood.errors import DataError
from tfbnood.models import RealNVP
from tfbnood.models.bijectors import Composition
from tfbnood.models.layers import BatchNormalization
from tfbnood.models.real_nvp import CouplingNetwork


def small(image_shape=(4, 4, 1), gain=1.0, **kwargs):
    model = RealNVP(image_shape, channels=4, blocks=1, **kwargs)
    rng = np.random.default_rng(0)
    for network in model.networks:
        # As made, every coupling is the identity.
        network.output_conv.gain.assign(gain * rng.normal(size=network.output_conv.gain.shape))
    return model


@pytest.fixture
def images():
    return np.random.default_rng(1).integers(0, 256, (6, 4, 4, 1), dtype=np.uint8)


def test_log_prob_is_the_change_of_variables_with_an_autodiff_jacobian():
    model = small((2, 2, 1), scales=1)
    images = np.random.default_rng(1).integers(0, 256, (6, 2, 2, 1), dtype=np.uint8)
    pixels = tf.cast(images, tf.float32) + tf.random.stateless_uniform((1, 2, 2, 1), seed=(0, 0))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(pixels)
        latents = tf.reshape(model.bijector.inverse(pixels), (6, 4))
        columns = tf.unstack(latents, axis=1)
    gradients = [np.reshape(tape.gradient(column, pixels), (6, 4)) for column in columns]
    log_dets = np.linalg.slogdet(np.stack(gradients, axis=1))[1]
    expected = -0.5 * (latents.numpy() ** 2).sum(axis=1) - 2 * np.log(2 * np.pi) + log_dets
    np.testing.assert_allclose(model.log_prob(images), expected, rtol=1e-4)


def integral_over_an_image(model, couplings, training):
    """∫ p(x | one fixed companion) dx for a 1×2 image, on the scale of logits, as a sum over a grid."""
    flow = Composition(couplings)
    companion = tf.constant([[[-1.0], [2.0]]])

    def density(candidate):
        # A batch for every candidate, since in training mode its own moments move with it.
        batch = tf.stack([tf.reshape(candidate, (1, 2, 1)), companion])
        latents, log_det = flow.inverse_and_log_det(batch, training)
        return tf.exp(model.prior.log_prob(latents)[0] + log_det[0])

    # Finer grids give the same: .971 and .974 in the last case, at steps of 0.3 and 0.2.
    step = 0.4
    axis = np.arange(-8, 8, step, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    values = tf.function(lambda points: tf.map_fn(density, points))(grid)
    return values.numpy().sum() * step**2


def test_proposition_1_holds_for_one_coupling_and_not_for_several():
    """The paper's Proposition 1: with the moments of the batch, exp(log p) is a density over an image.

    For one coupling it is. For several it is not quite: a companion's hidden values move with the image through
    the moments of the first coupling, and come back through those of the second, so that the Jacobian of the image
    alone is no longer triangular. The effect falls with the size of the batch; here it is two.
    """
    model = small((1, 2, 1), scales=1)
    _, first, *others = model.bijector.bijectors
    assert integral_over_an_image(model, [first], training=True) == pytest.approx(1, abs=0.005)
    every = [first, *others]
    assert integral_over_an_image(model, every, training=False) == pytest.approx(1, abs=0.005)
    assert abs(integral_over_an_image(model, every, training=True) - 1) > 0.01


def test_each_conditioner_runs_once_per_pass(images, monkeypatch):
    model = small()
    calls = []
    original = CouplingNetwork.call
    monkeypatch.setattr(
        CouplingNetwork, "call", lambda self, *a, **k: calls.append(self) or original(self, *a, **k)
    )
    for training in (False, True):
        calls.clear()
        model.log_prob(images, training)
        assert len(calls) == len(set(map(id, calls))) == len(model.networks) == 10
    calls.clear()
    model(images, training=True)
    assert len(calls) == 10


def test_batch_moments_reach_every_batch_normalisation(images, monkeypatch):
    model = small()
    modes = []
    original = BatchNormalization.call
    monkeypatch.setattr(
        BatchNormalization,
        "call",
        lambda self, x, training=None, mask=None: (
            modes.append(training) or original(self, x, training=training, mask=mask)
        ),
    )
    layers = [x for x in model._flatten_layers() if isinstance(x, keras.layers.BatchNormalization)]
    for training in (False, True):
        modes.clear()
        model.log_prob(images, training)
        assert modes == [training] * len(layers)


@pytest.mark.parametrize(
    ("image_shape", "scales"), [((6, 4, 3), 2), ((2, 2, 1), 2), ((5, 7, 1), 1), ((8, 4, 3), 3)]
)
def test_any_shape_that_the_scales_allow_inverts(image_shape, scales):
    model = small(image_shape, scales=scales)
    pixels = np.random.default_rng(2).uniform(0, 256, (3, *image_shape)).astype(np.float32)
    latents, _ = model.bijector.inverse_and_log_det(pixels)
    assert latents.shape == pixels.shape
    again, _ = model.bijector.forward_and_log_det(latents)
    np.testing.assert_allclose(again, pixels, atol=0.05)


@pytest.mark.parametrize(
    ("image_shape", "scales"), [((5, 4, 1), 2), ((6, 6, 1), 3), ((4, 4, 2), 2)]
)
def test_other_shapes_are_refused_by_name(image_shape, scales):
    with pytest.raises(DataError, match=r"image_shape must .*Received: image_shape="):
        RealNVP(image_shape, channels=4, blocks=1, scales=scales)


def test_temperature_scales_the_latents():
    model = small(gain=0.2)
    cold = model.bijector.inverse(model._sample(200, 0.5, seed=(3, 0))).numpy()
    hot = model.bijector.inverse(model._sample(200, 1.0, seed=(3, 0))).numpy()
    np.testing.assert_allclose(cold, 0.5 * hot, atol=1e-2)
    np.testing.assert_allclose(hot.std(), 1.0, atol=0.05)
