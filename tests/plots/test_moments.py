"""Maps of batch-norm moments: deviations against NumPy, rows against the model's own layers."""

import doctest
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from brought import PlainModel, trained_brought_model

import tfbnood
from tfbnood import plots
from tfbnood.errors import DataError, StatisticError
from tfbnood.models import VAE
from tfbnood.scoring.moments import image_moments
from tfbnood.scoring.rules import batch_normalizations

IMAGES = np.full((3, 4, 4, 1), 9, np.uint8)


@pytest.fixture(scope="module")
def model():
    model = VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8)
    random = np.random.default_rng(0)
    for norm in batch_normalizations(model):
        norm.moving_mean.assign(random.normal(size=norm.moving_mean.shape))
        norm.moving_variance.assign(random.uniform(0.5, 2, norm.moving_variance.shape))
    return model


def test_deviations_are_a_few_lines_of_numpy(digits):
    model = trained_brought_model(digits.train)
    images, reference = 255 - digits.test[:5], digits.train[:200]
    found = plots.moment_deviations(model, images, reference)

    def moments(some):
        above = np.pad(some[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0))) / 64.0
        variance = float(model.norm.moving_variance[0])
        return {
            "mean": above.mean(axis=(1, 2)) / np.sqrt(variance + 1e-5),
            "log variance": np.log((above.var(axis=(1, 2)) + 1e-5) / (variance + 1e-5)),
        }

    own, usual = moments(images), moments(reference)
    ((layer, values),) = found.items()
    assert layer.endswith(model.norm.name)
    assert list(values) == ["mean", "log variance"]
    for moment, deviations in values.items():
        expected = (own[moment] - usual[moment].mean()) / usual[moment].std()
        np.testing.assert_allclose(deviations, expected, rtol=1e-3, atol=1e-3)


def test_reference_images_have_deviations_of_mean_0_and_spread_1(model, digits):
    found = plots.moment_deviations(model, digits.train[:100], digits.train[:100])
    for layer in found.values():
        for deviations in layer.values():
            np.testing.assert_allclose(deviations.mean(axis=0), 0, atol=1e-3)
            assert (deviations.std(axis=0) < 1.001).all()
    assert np.median([layer["mean"].std() for layer in found.values()]) == pytest.approx(
        1, abs=0.01
    )


def test_every_layer_has_its_own_deviations_though_keras_lists_layers_otherwise(model, digits):
    found = plots.moment_deviations(model, digits.test[:3], digits.train[:64])
    by_path = {layer.path.removeprefix("vae/"): layer for layer in batch_normalizations(model)}
    assert set(found) == set(by_path)
    assert list(found) != list(by_path)
    before = image_moments(model)(digits.test[:3])[1][0].numpy()
    start = 0
    for name, values in found.items():
        layer = by_path[name]
        assert values["mean"].shape == (3, layer.moving_mean.shape[0])
        # With twice the moving variance the columns of this layer change before any other's.
        variance = layer.moving_variance.numpy()
        layer.moving_variance.assign(2 * variance)
        changed = np.abs(image_moments(model)(digits.test[:3])[1][0].numpy() - before).max(axis=0)
        layer.moving_variance.assign(variance)
        assert np.flatnonzero(changed > 1e-6)[0] >= start
        variances = slice(start + len(variance), start + 2 * len(variance))
        np.testing.assert_allclose(changed[variances], np.log(2), atol=1e-2)
        start += 2 * len(variance)


def test_a_layer_of_vectors_has_means_only_and_a_layer_called_twice_two_rows(digits):
    class Twice(keras.Model):
        def __init__(self):
            super().__init__()
            self.norm = keras.layers.BatchNormalization(name="norm")
            self.last = keras.layers.BatchNormalization(name="last")

        def log_prob(self, images, training=False):
            maps = tf.cast(images, tf.float32) / 255
            maps = self.norm(2 * self.norm(maps, training=training), training=training)
            vectors = self.last(tf.reduce_mean(maps, axis=(1, 2)), training=training)
            return -tf.reduce_sum(vectors**2, axis=-1)

    found = plots.moment_deviations(Twice(), digits.test[:2], digits.train[:50])
    assert [(name.split("/")[-1], list(values)) for name, values in found.items()] == [
        ("norm", ["mean", "log variance"]),
        ("norm, call 2", ["mean", "log variance"]),
        ("last", ["mean"]),
    ]
    panels = plots.moment_map(found).axes
    assert np.isnan(panels[1].images[0].get_array().filled(np.nan)[2]).all()


def test_the_map_has_a_row_a_layer_and_blanks_where_there_is_no_channel():
    deviations = {
        "first": {"mean": [[1.0, 3.0], [3.0, 5.0]], "log variance": [[-9.0, 0.0], [-9.0, 2.0]]},
        "dense": {"mean": [[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]},
    }
    figure = plots.moment_map(deviations, limit=4)
    mean, variance, bar = figure.axes
    shown = [axes.images[0].get_array().filled(np.nan) for axes in (mean, variance)]
    np.testing.assert_array_equal(shown[0], [[2, 4, np.nan], [1, 1, 1]])
    np.testing.assert_array_equal(shown[1], [[-9, 1, np.nan], [np.nan] * 3])
    assert [tick.get_text() for tick in mean.get_yticklabels()] == ["first", "dense"]
    assert (mean.get_title(), variance.get_title()) == ("mean", "log variance")
    assert mean.get_xlabel() == variance.get_xlabel() == "channel"
    assert mean.images[0].get_clim() == variance.images[0].get_clim() == (-4, 4)
    assert mean.images[0].get_cmap().name == "PuOr"
    assert bar.get_xlabel() == "standard deviations of the reference images; colours end at ±4"
    assert "mean of 2 images" in figure.get_suptitle()


def test_names_of_many_layers_do_not_overlap():
    many = {f"layer {index}": {"mean": np.zeros((1, 2))} for index in range(200)}
    figure = plots.moment_map(many)
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels == [f"layer {index}" for index in range(0, 200, 3)]


def test_moments_draws_the_deviations_of_the_model(model, digits):
    images, reference = 255 - digits.test[:1], digits.train[:64]
    figure = plots.moments(model, images, reference, title="inverted")
    found = plots.moment_deviations(model, images, reference)
    for axes in figure.axes[:2]:
        shown = axes.images[0].get_array().filled(np.nan)
        assert len(shown) == len(found)
        for row, layer in zip(shown, found.values(), strict=True):
            expected = layer[axes.get_title()][0]
            # Two passes add float32 numbers up in another order, and a deviation is a difference of such sums.
            np.testing.assert_allclose(row[: len(expected)], expected, rtol=1e-4, atol=1e-5)
            assert np.isnan(row[len(expected) :]).all()
    assert figure.get_suptitle() == "inverted"


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: plots.moment_map({}), "deviations must be arrays .* Received: shapes {}"),
        (lambda: plots.moment_map({"a": {"mean": [1.0]}}), "deviations must be arrays"),
        (lambda: plots.moment_map({"a": {"mode": [[1.0]]}}), "by mean and log variance"),
        (lambda: plots.moment_map({"a": {"mean": [[1.0]]}}, limit=0), "limit=0"),
        (lambda: plots.moments(None, IMAGES, IMAGES), "model must be .*Received: NoneType"),
        (lambda: plots.moments(PlainModel(), IMAGES, IMAGES), "Received: PlainModel"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(draw, said):
    with pytest.raises((DataError, StatisticError), match=said) as raised:
        draw()
    assert "\n" not in str(raised.value)


def test_references_that_do_not_go_with_the_images_are_said(model, digits):
    with pytest.raises(DataError, match=r"images must have .*\(8, 8, 1\)"):
        plots.moments(model, IMAGES, digits.train)
    with pytest.raises(DataError, match=r"reference must have .*\(8, 8, 1\)"):
        plots.moments(model, digits.test[:1], IMAGES)
    with pytest.raises(DataError, match="Received: 1 images and"):
        plots.moments(model, digits.test[:1], digits.train[:1])


def test_the_examples_run():
    module = sys.modules["tfbnood.plots.moments"]  # The package has a function of that name.
    result = doctest.testmod(module, extraglobs={"tfbnood": tfbnood})
    assert result.attempted > 0
    assert result.failed == 0
