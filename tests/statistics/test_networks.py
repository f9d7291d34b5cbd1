"""Statistics of networks against independent NumPy lines: features, bn_shift, bn_local."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfbnood import Detector, statistics
from tfbnood._core.sampling import sample_of
from tfbnood.calibration.conformal import calibrate
from tfbnood.errors import StatisticError
from tfbnood.networks.network import as_model
from tfbnood.scoring.moments import image_maps, image_moments
from tfbnood.statistics.bn_moments import BnMoments
from tfbnood.statistics.bn_shift import BnShift

layers = keras.layers


@pytest.fixture(scope="module")
def network(digits):
    """A classifier of the digits, trained for a moment so that its moving moments are those of digits."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 16 / 16),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(digits.train, digits.train_labels, epochs=3, verbose=0)
    return as_model(model, (8, 8, 1))


def test_features_are_cosine_distances_to_the_five_nearest(network, digits):
    statistic = statistics.get("features", reference_images=200, seed=3).fit(network, digits.train)

    def directions(images):
        found = network.features(images).numpy().astype(np.float64)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    known = directions(sample_of(digits.train, 200, 3))
    similar = np.sort(directions(digits.test[:7]) @ known.T, axis=1)
    expected = 1 - similar[:, -5:].mean(axis=1)
    np.testing.assert_allclose(statistic.score(digits.test[:7]), expected, atol=1e-3)


def test_features_are_kept_in_half_precision(network, digits):
    statistic = statistics.get("features").fit(network, digits.train[:100])
    assert statistic.known_.dtype == np.float16
    assert statistic.known_.nbytes == 2 * 8 * 100


def test_bn_moments_of_a_network_are_residuals_of_its_moments(network, digits):
    statistic = statistics.get("bn_moments", components=3).fit(network, digits.train[:300])
    rows = image_moments(network)(digits.test[:6])[1][0].numpy().astype(np.float64)
    standard = np.clip((rows - statistic.mean_) / statistic.scale_, -30, 30)
    axes = statistic.components_.astype(np.float64)
    outside = standard - standard @ axes.T @ axes
    np.testing.assert_allclose(
        statistic.score(digits.test[:6]), np.square(outside).sum(axis=1), rtol=1e-3
    )


def test_few_reference_images_get_few_components(network, digits):
    statistic = statistics.get("bn_moments").fit(network, digits.train[:20])
    assert len(statistic.components_) == 5


@pytest.fixture(scope="module")
def shift(network, digits):
    return statistics.get("bn_shift", components=5).fit(network, digits.train)


def test_bn_shift_is_the_squared_length_of_the_mean_residual(shift, digits):
    rows = shift.residuals(digits.test[:70]).astype(np.float64)
    expected = np.square(rows.mean(axis=0)).sum()
    np.testing.assert_allclose(shift.score(digits.test[:70]), expected, rtol=1e-4)
    inside = tf.function(shift.tensor_score)(tf.constant(digits.test[:70]))
    np.testing.assert_allclose(inside, shift.score(digits.test[:70]), rtol=1e-4)


def test_bn_shift_of_fitted_moments_is_the_same_test(network, shift, digits):
    moments = BnMoments(components=5).fit(network, digits.train)
    again = BnShift.of(moments)
    np.testing.assert_allclose(
        again.score(digits.test[:9]), shift.score(digits.test[:9]), rtol=1e-4
    )


def test_random_groups_of_a_calibration_are_weighted_sums_of_a_gram_matrix(shift, digits):
    """One group by hand, stretched about the mean of the calibration images."""
    images, size = digits.calibration[:50], 8
    rows = shift.residuals(sample_of(images, 2000, shift.seed)).astype(np.float64)
    centre = rows.mean(axis=0)
    random = np.random.RandomState(shift.seed)
    expected = []
    for _ in range(999):
        group = rows[random.permutation(50)[:size]].mean(axis=0)
        stretched = centre + (group - centre) * np.sqrt(49 / 42)
        expected.append(np.square(stretched).sum())
    found = shift.group_null(images, (size,))[size]
    np.testing.assert_allclose(found, np.sort(expected), rtol=1e-4)


def test_bn_shift_raises_as_many_alarms_as_its_rate_allows(shift, digits):
    """Fresh groups, of test images, at 10 %: 200 groups of 16, within binomial limits of 4 standard errors."""
    null = calibrate(shift, digits.calibration).null_of_batches(16)
    rows = shift.residuals(digits.test).astype(np.float64)
    random = np.random.RandomState(1)
    alarms = 0
    for _ in range(200):
        value = np.square(rows[random.permutation(len(rows))[:16]].mean(axis=0)).sum()
        alarms += (1 + (null >= value).sum()) / (len(null) + 1) <= 0.1
    assert alarms <= 20 + 4 * np.sqrt(200 * 0.1 * 0.9)


def test_bn_shift_finds_a_quarter_of_outliers_that_single_scores_hardly_show(shift, digits):
    detector = Detector.__new__(Detector)
    detector.model, detector.statistic, detector.reference = None, shift, None
    detector.tolerate, detector.about = (), {}
    detector.calibration = calibrate(shift, digits.calibration)
    mixed = np.concatenate([digits.test[:48], 255 - digits.test[48:64]])
    assert detector.test_batch(mixed).p_value <= 0.002
    assert detector.test_batch(digits.test[64:128]).p_value > 0.01


@pytest.mark.parametrize("places", [True, False])
def test_bn_local_is_the_largest_standardised_deviation_of_a_place(network, digits, places):
    statistic = statistics.get("bn_local", layers=(0, 0.4), places=places)
    statistic.fit(network, digits.train[:100])

    def maps(images):
        return image_maps(network)(images)[2][0].numpy().astype(np.float64)

    axes = 0 if places else (0, 1, 2)
    some = sample_of(digits.train[:100], 1000, 0)
    known = maps(some[:50])
    mean, scale = known.mean(axis=axes), np.maximum(known.std(axis=axes), 0.1)

    def deviations(images):
        return np.square(np.clip((maps(images) - mean) / scale, -10, 10)).mean(axis=3)

    usual = deviations(some[50:])
    centre, spread = usual.mean(axis=axes), np.maximum(usual.std(axis=axes), 1e-3)
    expected = (deviations(digits.test[:5]) - centre) / spread
    np.testing.assert_allclose(statistic.maps(digits.test[:5]), expected, rtol=0.05, atol=0.05)
    np.testing.assert_allclose(
        statistic.score(digits.test[:5]), expected.max(axis=(1, 2)), rtol=0.05, atol=0.05
    )


def test_bn_local_finds_a_spot_and_where_it_is(network, digits):
    statistic = statistics.get("bn_local", layers=(0, 0.7)).fit(network, digits.train)
    spoiled = digits.test[:100].copy()
    spoiled[:, 0:2, 0:2] = 255  # Digits are black there.
    peaks = statistic.maps(spoiled).reshape(100, -1).argmax(axis=1)
    rows, columns = np.unravel_index(peaks, (8, 8))
    assert ((rows <= 2) & (columns <= 2)).mean() > 0.9
    clean, found = statistic.score(digits.test[:100]), statistic.score(spoiled)
    assert (found > clean).mean() > 0.95


def test_bn_local_needs_maps(digits):
    dense = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(4),
            layers.BatchNormalization(),
            layers.Dense(2),
        ]
    )
    with pytest.raises(StatisticError, match="needs batch normalisations of maps"):
        Detector(dense, "bn_local", reference=digits.train[:20])


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("features", {"neighbours": 0}, "neighbours must be at least 1"),
        ("bn_local", {"layers": (0.5, 0.5)}, "layers must be"),
        ("bn_local", {"layers": (-0.1, 0.5)}, "layers must be"),
    ],
)
def test_settings_are_checked_at_once(name, settings, message):
    with pytest.raises(StatisticError, match=message):
        statistics.get(name, **settings)
