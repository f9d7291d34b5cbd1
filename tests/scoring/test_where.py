"""What each place adds to a distance of moments: the sum against the distance, one layer against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood import statistics
from tfbnood.models import VAE
from tfbnood.scoring.evidence import gather
from tfbnood.scoring.moments import image_maps
from tfbnood.scoring.rules import batch_normalizations
from tfbnood.scoring.where import map_columns, moment_places, smooth, standardize, surroundings


@pytest.fixture(scope="module")
def vae():
    model = VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8)
    random = np.random.default_rng(0)
    for norm in batch_normalizations(model):
        norm.moving_mean.assign(random.normal(size=norm.moving_mean.shape))
        norm.moving_variance.assign(random.uniform(0.5, 2, norm.moving_variance.shape))
    return model


def places_of(statistic, images):
    evidence = gather(statistic._model, "maps", images)
    return [
        one.numpy()
        for one in moment_places(
            statistic.tensor_residuals(evidence),
            statistic._moments(evidence),
            evidence.maps,
            map_columns(statistic._model, statistic.image_shape_, statistic.grid),
            mean=statistic.mean_,
            scale=statistic.scale_,
        )
    ]


@pytest.mark.parametrize("grid", [1, 2])
def test_the_places_of_all_maps_add_up_to_the_score(vae, digits, grid):
    statistic = statistics.get("bn_moments", grid=grid, components=5).fit(vae, digits.train[:200])
    images = digits.test[:6]
    total = sum(one.sum(axis=(1, 2), dtype=np.float64) for one in places_of(statistic, images))
    np.testing.assert_allclose(total, statistic.score(images), rtol=2e-3)


def test_the_places_of_one_layer_are_a_few_lines_of_numpy(brought_model, digits):
    statistic = statistics.get("bn_moments", components=1).fit(brought_model, digits.train)
    images = digits.test[:4]
    by_mean, by_variance = places_of(statistic, images)

    variance = float(brought_model.norm.moving_variance[0])
    mean = float(brought_model.norm.moving_mean[0])
    above = np.pad(images[:, :-1, :, 0], ((0, 0), (1, 0), (0, 0))) / 64.0
    values = (above - mean) / np.sqrt(variance + 1e-5)
    own = np.stack(
        [
            values.mean(axis=(1, 2)),
            np.log((above.var(axis=(1, 2)) + 1e-5) / (variance + 1e-5)),
        ],
        axis=1,
    )
    axes = statistic.components_.astype(np.float64)
    standard = (own - statistic.mean_) / statistic.scale_
    pulls = (standard - standard @ axes.T @ axes) / statistic.scale_
    expected = pulls[:, 0, None, None] * (values - statistic.mean_[0]) / 64
    np.testing.assert_allclose(by_mean, expected, rtol=1e-3, atol=1e-5)
    usual = np.exp(statistic.mean_[1])
    slope = (own[:, 1] - statistic.mean_[1]) / (np.exp(own[:, 1]) - usual)
    squares = np.square(values - values.mean(axis=(1, 2), keepdims=True))
    squares += 1e-5 / (variance + 1e-5)
    expected = (pulls[:, 1] * slope)[:, None, None] * (squares - usual) / 64
    np.testing.assert_allclose(by_variance, expected, rtol=1e-3, atol=1e-5)


def test_columns_without_places_are_passed_over():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.norms = [keras.layers.BatchNormalization() for _ in range(3)]

        def log_prob(self, images, training=False):
            maps = self.norms[0](tf.cast(images, tf.float32), training=training)
            vectors = self.norms[1](tf.reduce_mean(maps, axis=[1, 2]), training=training)
            maps = self.norms[2](
                tf.repeat(maps, 2, axis=3) + vectors[:, None, None], training=training
            )
            return -tf.reduce_sum(tf.square(maps), axis=[1, 2, 3])

    model = Model()
    model.log_prob(np.zeros((1, 4, 4, 1), np.uint8))
    first, last = map_columns(model, (4, 4, 1), 1)
    assert (first.start, first.stop, last.start, last.stop) == (0, 2, 3, 7)
    first, last = map_columns(model, (4, 4, 1), 2)
    assert (first.start, first.stop, last.start, last.stop) == (0, 8, 9, 25)
    _, moments, maps = image_maps(model)(np.zeros((2, 4, 4, 1), np.uint8))
    assert moments[1].shape[1] == last.stop
    assert [one.shape[3] for one in maps] == [first.channels, last.channels]


def test_standardized_maps_have_mean_zero_and_deviation_one_unless_all_places_are_alike():
    maps = np.random.default_rng(0).normal(3, 5, (2, 6, 7)).astype(np.float32)
    maps[1] = 4
    first, second = standardize(maps).numpy()
    np.testing.assert_allclose(first, (maps[0] - maps[0].mean()) / maps[0].std(), atol=1e-5)
    assert (second == 0).all()


def test_smoothing_spreads_a_peak_and_keeps_its_place():
    maps = np.zeros((1, 20, 10), np.float32)
    maps[0, 12, 4] = 1
    (found,) = smooth(tf.constant(maps)).numpy()
    assert np.unravel_index(found.argmax(), found.shape) == (12, 4)
    assert found[11, 4] > found[9, 4] > 0


def test_the_surroundings_of_an_even_image_are_the_image():
    images = tf.fill((1, 9, 6, 3), 80.0)
    np.testing.assert_allclose(surroundings(images), images, rtol=1e-5)
