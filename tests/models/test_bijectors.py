"""Every bijector: forward ∘ inverse = identity, log-determinants against an autodiff Jacobian, TFP's own methods."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability import bijectors as tfb
from tensorflow_probability import distributions as tfd

from tfbnood.models.bijectors import (
    ChannelCoupling,
    CheckerboardCoupling,
    Composition,
    Inverted,
    PartialBijector,
    PixelLogit,
    Squeeze,
)
from tfbnood.models.real_nvp import CouplingNetwork

SHAPE = (2, 4, 2)


def random_network(outputs: int) -> CouplingNetwork:
    """A coupling network with random weights everywhere: as made, its output is zero."""
    network = CouplingNetwork(outputs, 4, 1, seeds=itertools.count())
    network(tf.zeros((2, 4, 4, outputs)))
    rng = np.random.default_rng(0)
    for variable in network.variables:
        noise = rng.normal(size=variable.shape)
        positive = variable.name == "moving_variance"
        variable.assign(np.exp(0.3 * noise) if positive else 0.5 * noise)
    return network


def checkerboard(parity=0):
    return CheckerboardCoupling(random_network(2), parity)


def channelwise(parity=0):
    return ChannelCoupling(random_network(1), parity)


BIJECTORS = {
    "pixel_logit": PixelLogit,
    "squeeze": Squeeze,
    "unsqueeze": lambda: Inverted(Squeeze()),
    "checkerboard_even": lambda: checkerboard(0),
    "checkerboard_odd": lambda: checkerboard(1),
    "channel_first": lambda: channelwise(0),
    "channel_second": lambda: channelwise(1),
    "partial": lambda: PartialBijector(CheckerboardCoupling(random_network(1), 1)),
    "composition": lambda: Composition(
        [PixelLogit(), checkerboard(0), channelwise(1), Squeeze(), Inverted(Squeeze())]
    ),
}


@pytest.fixture(params=BIJECTORS)
def bijector(request):
    return BIJECTORS[request.param]()


@pytest.fixture
def images(bijector, request):
    rng = np.random.default_rng(1)
    shape = (2, 2, 2, 4) if "unsqueeze" in request.node.callspec.id else (2, *SHAPE)
    takes_pixels = isinstance(bijector, PixelLogit | Composition)
    values = rng.uniform(1, 255, shape) if takes_pixels else rng.normal(size=shape)
    return tf.constant(values, tf.float32)


def jacobian_log_det(function, images):
    """Log |det| of each row's own Jacobian, its companions in the batch held fixed."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(images)
        outputs = function(images)
    # Without pfor: compiling it would take longer than these few backward passes.
    jacobian = tape.jacobian(outputs, images, experimental_use_pfor=False).numpy()
    rows = range(len(images))
    size = int(np.prod(images.shape[1:]))
    return [
        np.linalg.slogdet(jacobian[row][..., row, :, :, :].reshape(size, size))[1] for row in rows
    ]


def test_forward_undoes_inverse(bijector, images):
    latents, encoded = bijector.inverse_and_log_det(images)
    again, generated = bijector.forward_and_log_det(latents)
    np.testing.assert_allclose(again, images, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(encoded, -generated, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("training", [False, True])
def test_log_determinant_is_that_of_the_autodiff_jacobian(bijector, images, training):
    if training and isinstance(bijector, Composition):
        pytest.skip("not so for several couplings: test_proposition_1_holds_for_one_coupling…")
    latents, log_det = bijector.inverse_and_log_det(images, training)
    expected = jacobian_log_det(lambda x: bijector.inverse_and_log_det(x, training)[0], images)
    np.testing.assert_allclose(log_det, expected, rtol=1e-3, atol=1e-3)
    if not training:  # In training mode the latents' companions are other images.
        expected = jacobian_log_det(lambda z: bijector.forward_and_log_det(z)[0], latents)
        np.testing.assert_allclose(-log_det, expected, rtol=1e-3, atol=1e-3)


def test_tfp_methods_agree_with_the_single_pass(bijector, images):
    latents, log_det = bijector.inverse_and_log_det(images)
    assert isinstance(bijector, tfb.Bijector)
    np.testing.assert_allclose(bijector.inverse(images), latents, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        bijector.inverse_log_det_jacobian(images, event_ndims=3), log_det, rtol=1e-5, atol=1e-5
    )
    # A copy: from the very tensor that inverse gave, TFP would answer out of its cache.
    copied = tf.identity(latents)
    np.testing.assert_allclose(bijector.forward(copied), images, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(
        bijector.forward_log_det_jacobian(copied, event_ndims=3), -log_det, rtol=1e-4, atol=1e-3
    )
    assert bijector.inverse_event_shape(images.shape[1:]) == latents.shape[1:]
    assert bijector.forward_event_shape(latents.shape[1:]) == images.shape[1:]
    sizes = bijector.inverse_event_shape_tensor(images.shape[1:])
    np.testing.assert_array_equal(sizes, latents.shape[1:])


def test_a_transformed_distribution_has_the_flow_s_density():
    flow = Composition([PixelLogit(), checkerboard(0), checkerboard(1)])
    prior = tfd.Sample(tfd.Normal(0.0, 1.0), sample_shape=SHAPE)
    images = tf.constant(np.random.default_rng(2).uniform(0, 256, (3, *SHAPE)), tf.float32)
    latents, log_det = flow.inverse_and_log_det(images)
    density = tfd.TransformedDistribution(prior, flow).log_prob(images)
    np.testing.assert_allclose(density, prior.log_prob(latents) + log_det, rtol=1e-5)


@pytest.mark.parametrize("make", [checkerboard, channelwise])
def test_training_reaches_the_conditioner_through_tfp_methods(make):
    bijector = make()
    images = tf.constant(np.random.default_rng(3).normal(size=(3, *SHAPE)), tf.float32)
    moving = bijector.inverse(images)
    batch = bijector.inverse(images, training=True)
    assert np.abs(moving - batch).max() > 1e-2
    inside = Composition([make()])
    np.testing.assert_allclose(inside.inverse(images, training=True), batch, rtol=1e-5, atol=1e-5)


def test_pixel_logit_density_is_that_of_a_numpy_line():
    pixels = np.linspace(0, 255.9, 32, dtype=np.float32).reshape(2, 2, 4, 2)
    share = 0.05 + 0.9 * pixels.astype(np.float64) / 256
    logits, log_det = PixelLogit().inverse_and_log_det(pixels)
    np.testing.assert_allclose(logits, np.log(share / (1 - share)), rtol=1e-4, atol=1e-5)
    expected = np.log(0.9 / 256 / (share * (1 - share))).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(log_det, expected, rtol=1e-5)


def test_either_half_of_squeezed_channels_is_a_checkerboard_of_the_image():
    rows, columns = np.indices((4, 6))
    board = ((rows + columns) % 2).astype(np.float32)[None, :, :, None]
    squeezed = Squeeze().inverse(board).numpy()
    assert squeezed.shape == (1, 2, 3, 4)
    assert (squeezed[..., :2] == 0).all()
    assert (squeezed[..., 2:] == 1).all()


@pytest.mark.parametrize("parity", [0, 1])
def test_a_coupling_moves_only_its_own_half(parity):
    images = np.random.default_rng(4).normal(size=(2, *SHAPE)).astype(np.float32)
    rows, columns = np.indices((2, 4))
    kept = (rows + columns) % 2 == parity
    moved = checkerboard(parity).inverse(images).numpy()
    assert (moved[:, kept] == images[:, kept]).all()
    assert (moved[:, ~kept] != images[:, ~kept]).all()
    moved = channelwise(parity).inverse(images).numpy()
    assert (moved[..., parity] == images[..., parity]).all()
    assert (moved[..., 1 - parity] != images[..., 1 - parity]).all()
