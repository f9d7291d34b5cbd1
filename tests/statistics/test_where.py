"""Heat maps: every statistic of single images has one, and it shows what was spoiled."""

import gc
import weakref

import keras
import numpy as np
import pytest

import tfbnood
from tfbnood import statistics
from tfbnood.errors import NotFittedError, StatisticError
from tfbnood.models import VAE
from tfbnood.statistics.where import explain

MODELLED = ("bn_moments", "bn_local", "log_prob", "complexity", "t_perm", "pixel_pca", "pixel_knn")


def small_vae():
    return VAE((8, 8, 1), channels=4, latents=3, bottleneck=8, head=8)


@pytest.fixture(scope="module")
def vae():
    return small_vae()


def check_maps(maps, count=3):
    assert maps.shape == (count, 8, 8)
    assert maps.dtype == np.float32
    np.testing.assert_allclose(maps.mean(axis=(1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(maps.std(axis=(1, 2)), 1, atol=1e-3)


def spoiled(images, seed=0):
    """Images with an inverted 3×3 square, and where it is."""
    random = np.random.default_rng(seed)
    images, inside = images.copy(), np.zeros(images.shape[:3], bool)
    for image, mask in zip(images, inside, strict=True):
        y, x = random.integers(0, 6, 2)
        image[y : y + 3, x : x + 3] = 255 - image[y : y + 3, x : x + 3]
        mask[y : y + 3, x : x + 3] = True
    return images, inside


def peaks_inside(maps, inside):
    return np.mean([mask.ravel()[one.argmax()] for one, mask in zip(maps, inside, strict=True)])


@pytest.mark.parametrize("name", MODELLED)
@pytest.mark.parametrize("reconstructs", [False, True])
def test_every_statistic_of_a_likelihood_model_has_maps(
    name, reconstructs, brought_model, vae, digits
):
    model = vae if reconstructs else brought_model
    statistic = statistics.get(name).fit(model, digits.train[:100])
    check_maps(explain(statistic, digits.test[:3]))


@pytest.mark.parametrize("name", ["features", "bn_moments", "bn_local", "ensemble"])
def test_every_statistic_of_a_network_has_maps(name, digits):
    network = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Conv2D(6, 3, strides=2, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )
    statistic = tfbnood.Detector(network, name, reference=digits.train[:100]).statistic
    check_maps(explain(statistic, digits.test[:3]))


def test_statistics_of_two_models_are_explained_by_occlusion(brought_model, vae, digits):
    for name in ("waic", "likelihood_ratio"):
        statistic = statistics.get(name).fit([brought_model, vae], digits.train[:50])
        check_maps(explain(statistic, digits.test[:3]))


def test_the_map_of_reconstruction_is_its_squared_error(vae, digits):
    maps = explain(statistics.get("reconstruction").fit(vae, digits.train), digits.test[:3])
    likelihood = explain(statistics.get("log_prob").fit(vae, digits.train), digits.test[:3])
    np.testing.assert_allclose(maps, likelihood, atol=1e-3)
    errors = np.square(vae.reconstruct(digits.test[:3]) - digits.test[:3])[..., 0]
    apart = np.square(np.arange(8)[:, None] - np.arange(8)) / (2 * (0.12 * 8) ** 2)
    expected = np.exp(-apart) @ errors @ np.exp(-apart)
    expected -= expected.mean(axis=(1, 2), keepdims=True)
    expected /= expected.std(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(maps, expected, atol=1e-3)


@pytest.mark.parametrize("name", ["pixel_pca", "pixel_knn", "pretext"])
def test_maps_of_pixels_need_no_model(name, digits):
    config = {"steps": 5, "width": 4, "kinds": ("noise",)} if name == "pretext" else {}
    statistic = statistics.get(name, **config).fit(None, digits.train[:200])
    check_maps(explain(statistic, digits.test[:3]))


def test_the_peak_lies_in_a_spoiled_square_of_a_digit(brought_model, digits):
    images, inside = spoiled(digits.test[:100])
    statistic = statistics.get("pixel_knn").fit(None, digits.train)
    assert peaks_inside(explain(statistic, images), inside) > 0.7  # 0.14 by chance
    statistic = statistics.get("ensemble", pretext=False).fit(brought_model, digits.train)
    assert peaks_inside(explain(statistic, images), inside) > 0.5


def test_a_statistic_of_ones_own_is_explained_by_occlusion(digits):
    class Brightest(statistics.Statistic):
        name, scope, needs_model = "brightest", "image", False

        def _fit(self, model, reference):
            pass

        def _score(self, images):
            return images.mean(axis=(1, 2, 3))

    images = np.zeros((4, 20, 30, 3), np.uint8)
    images[:, 12:18, 3:9] = 255
    maps = explain(Brightest().fit(None, images), images)
    for one in maps:
        y, x = np.unravel_index(one.argmax(), one.shape)
        assert 12 <= y < 18
        assert 3 <= x < 9


def test_a_score_without_a_gradient_is_explained_by_occlusion(digits):
    import tensorflow as tf

    from tfbnood.statistics.base import EvidenceStatistic

    class Dark(EvidenceStatistic):
        name, need, needs_model = "dark", "pixels", False

        def tensor_score(self, evidence):
            return tf.reduce_sum(tf.cast(evidence.images < 1, tf.float32), axis=[1, 2, 3])

    images = np.full((2, 12, 12, 1), 200, np.uint8)
    images[:, 1:4, 8:11] = 0
    for one in explain(Dark().fit(None, images), images):
        y, x = np.unravel_index(one.argmax(), one.shape)
        assert y < 5
        assert x > 6


def test_batch_statistics_are_refused(brought_model, digits):
    statistic = statistics.get("bn_delta").fit(brought_model, digits.train[:100])
    with pytest.raises(StatisticError, match=r'scope "image".*Received: bn_delta'):
        explain(statistic, digits.test[:3])


def test_explaining_needs_a_fit(digits):
    with pytest.raises(NotFittedError, match="pixel_pca"):
        explain(statistics.get("pixel_pca"), digits.test[:3])


def test_explaining_leaves_every_variable_bit_identical(vae, digits):
    members = ["bn_moments", "log_prob", "pixel_knn"]
    statistic = statistics.get("ensemble", members=members).fit(vae, digits.train[:200])
    before = [variable.numpy() for variable in vae.variables]
    explain(statistic, digits.test[:3])
    for variable, value in zip(vae.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_maps_are_the_same_again_and_in_other_company(brought_model, digits):
    statistic = statistics.get("ensemble", pretext=False).fit(brought_model, digits.train[:200])
    maps = explain(statistic, digits.test[:20])
    np.testing.assert_array_equal(maps, explain(statistic, digits.test[:20]))
    np.testing.assert_allclose(maps[17:18], explain(statistic, digits.test[17:18]), atol=1e-3)


def test_maps_follow_a_new_fit(digits):
    statistic = statistics.get("pixel_pca").fit(None, digits.train[:200])
    before = explain(statistic, digits.test[:3])
    statistic.fit(None, 255 - digits.train[200:400])
    fresh = statistics.get("pixel_pca").fit(None, 255 - digits.train[200:400])
    np.testing.assert_array_equal(
        explain(statistic, digits.test[:3]), explain(fresh, digits.test[:3])
    )
    assert not np.array_equal(before, explain(statistic, digits.test[:3]))


def test_a_model_that_was_trained_on_is_refused(digits):
    vae = small_vae()
    statistic = statistics.get("log_prob").fit(vae, digits.train[:100])
    vae.trainable_variables[0].assign_add(np.ones(vae.trainable_variables[0].shape))
    with pytest.raises(StatisticError, match="as it was when"):
        explain(statistic, digits.test[:3])


def test_an_even_image_has_a_map_of_zeros_and_nothing_that_is_not_finite():
    images = np.full((20, 8, 8, 1), 7, np.uint8)
    statistic = statistics.get("pixel_knn").fit(None, images)
    assert (explain(statistic, images[:2]) == 0).all()


def test_a_compiled_map_does_not_keep_its_statistic_alive(digits):
    statistic = statistics.get("pixel_pca").fit(None, digits.train[:100])
    explain(statistic, digits.test[:2])
    reference = weakref.ref(statistic)
    del statistic
    gc.collect()
    assert reference() is None
