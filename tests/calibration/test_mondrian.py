"""Calibration within clusters: p-values and levels by NumPy, every door, saved, exported, refused."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfbnood
from tfbnood.calibration.clusters import Clusters
from tfbnood.calibration.mondrian import Mondrian, highest_within
from tfbnood.errors import DataError, SavedDetectorError, StatisticError
from tfbnood.export.read import ExportedDetector


@pytest.fixture(scope="module")
def pixels(digits):
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    return detector.calibrate(digits.calibration, clusters=4)


@pytest.fixture(scope="module")
def by_moments(brought_model, digits):
    detector = tfbnood.Detector(brought_model, "bn_moments", reference=digits.train, components=5)
    return detector.calibrate(digits.calibration, clusters=3)


def make_mondrian(*nulls):
    clusters = Clusters("pixels", np.zeros(2), np.eye(2), np.zeros((len(nulls), 2)))
    return Mondrian(clusters, tuple(np.sort(np.asarray(null, float)) for null in nulls))


def numpy_p_values(detector, images):
    """By hand: the score among calibration scores of the same cluster."""
    within = detector.calibration.within
    rows = within.clusters.assign(detector.statistic, images)
    scores = detector.score(images)
    return rows, np.array(
        [
            (1 + np.sum(within.nulls[cluster] >= score)) / (len(within.nulls[cluster]) + 1)
            for score, cluster in zip(scores, rows, strict=True)
        ]
    )


def test_an_image_is_in_the_cluster_whose_centre_is_nearest(pixels, digits):
    clusters = pixels.calibration.within.clusters
    rows = digits.test.reshape(len(digits.test), -1) / 255
    points = (rows - clusters.mean) @ clusters.axes
    distances = ((points[:, None] - clusters.centres) ** 2).sum(axis=2)
    assert (clusters.assign(pixels.statistic, digits.test) == distances.argmin(axis=1)).all()
    assert np.allclose(points.std(axis=0), 1, atol=0.25)  # whitened


def test_clusters_follow_classes_without_seeing_labels(pixels, digits):
    rows = pixels.calibration.within.clusters.assign(pixels.statistic, digits.test)
    tables = [np.bincount(rows[digits.test_labels == label], minlength=4) for label in range(10)]
    assert np.mean([table.max() / table.sum() for table in tables]) > 0.6  # 0.25 by chance


@pytest.mark.parametrize("which", ["pixels", "by_moments"])
def test_every_door_has_the_p_values_within_clusters(which, digits, request):
    detector = request.getfixturevalue(which)
    images = np.concatenate([digits.test[:60], 255 - digits.test[:10]])
    rows, expected = numpy_p_values(detector, images)
    np.testing.assert_allclose(detector.p_values(images), expected)
    found = detector.predict(images, fpr=0.05)
    np.testing.assert_allclose(found.p_value, expected)
    assert (found.cluster == rows).all()
    assert (found[3:9].cluster == rows[3:9]).all()
    assert (found.is_ood == (expected <= 0.05)).all()
    assert 0 < found.is_ood.sum() < len(images)
    assert ((detector.decision_function(images, fpr=0.05) < 0) == found.is_ood).all()
    assert "in each of" in found.rule
    assert "its cluster" in found.assumed
    assert "cluster" in found.to_frame()


def test_calibration_scores_by_cluster_are_those_of_the_images(pixels, digits):
    calibration = pixels.calibration
    joined = np.sort(np.concatenate(calibration.within.nulls))
    assert (joined == calibration.null_of_images(1)).all()
    assert (joined == np.sort(pixels.score(digits.calibration))).all()


def test_a_stream_is_calibrated_and_scored_as_an_array(pixels, digits):
    batches = (digits.calibration[start : start + 70] for start in range(0, 300, 70))
    again = tfbnood.Detector(None, "pixel_pca", reference=digits.train).calibrate(
        batches, clusters=4
    )
    for one, other in zip(
        again.calibration.within.nulls, pixels.calibration.within.nulls, strict=True
    ):
        np.testing.assert_allclose(one, other)
    stream = (image for image in digits.test[:90])
    np.testing.assert_allclose(again.p_values(stream), pixels.p_values(digits.test[:90]))


def test_fit_takes_clusters(digits):
    detector = tfbnood.Detector(None, "pixel_pca").fit(digits.train[:600], clusters=3)
    assert len(detector.calibration.within.nulls) == 3
    assert "in each of 3 clusters by pixels" in repr(detector)
    with pytest.raises(DataError, match="clusters must be an integer of at least 2"):
        tfbnood.Detector(None, "pixel_pca").fit(digits.train[:600], clusters=1)


def test_a_statistic_of_numpy_alone_has_clusters_too(digits):
    class Brightness(tfbnood.statistics.Statistic):
        name, scope, needs_model = "brightness within", "image", False

        def _fit(self, model, reference):
            self.mean_ = reference.mean()

        def _score(self, images):
            return np.abs(images.mean(axis=(1, 2, 3)) - self.mean_)

    detector = tfbnood.Detector(None, Brightness(), reference=digits.train)
    detector.calibrate(digits.calibration, clusters=3)
    _, expected = numpy_p_values(detector, digits.test[:40])
    np.testing.assert_allclose(detector.p_values(digits.test[:40]), expected)


def test_a_network_is_clustered_by_what_its_statistic_sees(digits):
    network = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, kernel_initializer=keras.initializers.GlorotUniform(0)),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )
    for statistic, kind in (("features", "features"), ("bn_moments", "moments")):
        detector = tfbnood.Detector(network, statistic, reference=digits.train[:60])
        detector.calibrate(digits.calibration[:40], clusters=2)
        assert detector.calibration.within.clusters.kind == kind
        _, expected = numpy_p_values(detector, digits.test[:5])
        np.testing.assert_allclose(detector.p_values(digits.test[:5]), expected)


@pytest.mark.parametrize("which", ["pixels", "by_moments"])
def test_saved_and_loaded_it_gives_the_same_p_values(which, digits, tmp_path, request):
    detector = request.getfixturevalue(which)
    detector.save(tmp_path / "saved")
    again = tfbnood.Detector.load(tmp_path / "saved")
    assert (again.p_values(digits.test[:50]) == detector.p_values(digits.test[:50])).all()
    assert str(again.calibration) == str(detector.calibration)


def test_a_loaded_detector_finds_clusters_in_images_that_are_given(pixels, digits, tmp_path):
    pixels.save(tmp_path / "saved")
    again = tfbnood.Detector.load(tmp_path / "saved")
    with pytest.raises(DataError, match=r"clusters need reference images.*reference=images"):
        again.calibrate(digits.calibration, clusters=4)
    again.calibrate(digits.calibration, clusters=4, reference=digits.train)
    assert (again.p_values(digits.test[:50]) == pixels.p_values(digits.test[:50])).all()
    assert again.calibrate(digits.calibration).calibration.within is None


def test_damaged_clusters_are_refused(pixels, tmp_path):
    from tfbnood import saving

    pixels.save(tmp_path / "saved")
    with np.load(tmp_path / "saved" / "arrays.npz") as arrays:
        whole = {name: arrays[name] for name in arrays.files}
    damages = {
        "within/0": lambda a: a[::-1],
        "within/1": lambda a: None,
        "clusters/centres": lambda a: a[:, 1:],
        "clusters/mean": lambda a: a + np.nan,
        "clusters/axes": lambda a: None,
    }
    for name, damage in damages.items():
        changed = {**whole, name: damage(whole[name])}
        with pytest.raises((ValueError, TypeError, DataError, StatisticError)):
            saving._calibration({k: v for k, v in changed.items() if v is not None}, "pixels")
    with pytest.raises((ValueError, DataError)):
        saving._calibration(dict(whole), "nonsense")
    description = tmp_path / "saved" / "detector.json"
    description.write_text(description.read_text().replace('"pixels"', '"moments"'))
    with pytest.raises(SavedDetectorError):
        saving.load(tmp_path / "saved")


@pytest.mark.parametrize("which", ["pixels", "by_moments"])
def test_an_export_has_the_same_p_values_and_says_cluster_and_certificate(
    which, digits, tmp_path, request
):
    detector = request.getfixturevalue(which)
    images = np.concatenate([digits.test[:90], 255 - digits.test[:10]])
    version = detector.export(tmp_path / "served", fpr=0.2, confidence=0.9)
    found = ExportedDetector(version).predict(images)
    expected = detector.predict(images, fpr=0.2)
    certified = detector.predict(images, fpr=0.2, confidence=0.9)
    np.testing.assert_allclose(found["p_value"], expected.p_value, atol=1e-5)
    assert (found["cluster"] == expected.cluster).all()
    assert (found["is_ood"] == expected.is_ood).all()
    assert (found["is_ood_certified"] == certified.is_ood).all()
    assert 0 < certified.is_ood.sum() < expected.is_ood.sum()
    about = json.loads((version / "assets.extra" / "detector.json").read_text())
    assert about["confidence"] == ExportedDetector(version).confidence == 0.9
    scores = detector.score(images)
    above = scores > np.array(about["clusters"]["thresholds"])[expected.cluster]
    assert (above == expected.is_ood).all()
    above = scores > np.array(about["certified_thresholds"])[expected.cluster]
    assert (above == certified.is_ood).all()


def test_a_certificate_without_clusters_is_an_output_of_every_row_wise_signature(digits, tmp_path):
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    detector.calibrate(digits.calibration)
    version = detector.export(tmp_path / "served", fpr=0.05, confidence=0.95)
    served = tf.saved_model.load(str(version))
    images = np.concatenate([digits.test, 255 - digits.test[:5]])
    # Among 300 scores the 9th largest, where 15 would be 5 % on average.
    threshold = np.sort(detector.score(digits.calibration))[-9]
    expected = detector.score(images) > threshold
    answers = {
        "uint8": served.signatures["uint8"](images=tf.constant(images)),
        "serving_default": served.signatures["serving_default"](
            images=tf.constant(images, tf.float32)
        ),
        "encoded": served.signatures["encoded"](
            image_bytes=tf.constant([tf.io.encode_png(image).numpy() for image in images])
        ),
    }
    for answer in answers.values():
        assert (answer["is_ood_certified"].numpy() == expected).all()
        assert (answer["is_ood"].numpy() >= expected).all()
        assert "cluster" not in answer
    broken = np.full((1, *digits.image_shape), np.nan, np.float32)
    answer = served.signatures["serving_default"](images=tf.constant(broken))
    assert answer["is_ood_certified"].numpy().tolist() == [True]
    with pytest.raises(DataError, match="calibrate on at least 598 images"):
        detector.export(tmp_path / "served", fpr=0.005, confidence=0.95)


def test_rates_that_the_smallest_cluster_cannot_resolve_are_refused_with_a_number(pixels, tmp_path):
    mondrian = make_mondrian(np.arange(400.0), np.arange(49.0))
    assert mondrian.least == 49
    levels, rule = mondrian.alarm_levels(0.02)
    assert levels.tolist() == [0.02, 0.02]
    assert rule == "false-alarm rate 0.02 in each of 2 clusters"
    with pytest.raises(DataError, match=r"n=49 .* about 908 images instead of 449"):
        mondrian.alarm_levels(0.01)  # 99 are needed where there are 49
    with pytest.raises(
        DataError, match=r"smallest of 2 clusters and confidence=0.95; .* about 660"
    ):
        mondrian.alarm_levels(0.05, confidence=0.95)  # 72 for 97.5 %
    assert mondrian.alarm_levels()[0].tolist() == [0.1, 0.1]
    with pytest.raises(DataError, match="smallest of 4 clusters"):
        pixels.export(tmp_path / "served", fpr=0.001)


def test_certified_levels_hold_in_all_clusters_at_once():
    random = np.random.RandomState(0)
    sizes, fpr, broken = (150, 400), 0.1, 0
    for _ in range(400):
        nulls = [np.sort(random.uniform(size=size)) for size in sizes]
        mondrian = make_mondrian(*nulls)
        levels, _ = mondrian.alarm_levels(fpr, confidence=0.9)
        rates = 1 - mondrian.thresholds(levels)  # of uniform scores
        broken += (rates > fpr).any()
    assert broken / 400 <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 400)


def test_thresholds_are_where_alarms_begin():
    mondrian = make_mondrian(np.arange(99.0), np.arange(1000.0, 1049.0))
    levels = np.array([0.05, 0.1])
    thresholds = mondrian.thresholds(levels)
    assert thresholds.tolist() == [94.0, 1044.0]
    for cluster, threshold in enumerate(thresholds):
        p_values = mondrian.p_values(threshold + np.array([0, 0.1]), np.full(2, cluster))
        assert p_values[1] <= levels[cluster] < p_values[0]


def test_with_several_calibrations_no_p_value_is_below_the_largest_of_theirs():
    random = np.random.RandomState(1)
    several = [
        make_mondrian(random.normal(size=40), random.normal(size=90)),
        make_mondrian(random.normal(size=55), random.normal(0.5, size=90)),
        make_mondrian(random.normal(size=41), random.normal(size=70)),
    ]
    merged = highest_within(several)
    assert [len(null) for null in merged.nulls] == [40, 70]
    scores, rows = random.normal(size=500), random.randint(0, 2, 500)
    largest = np.max([one.p_values(scores, rows) for one in several], axis=0)
    found = merged.p_values(scores, rows)
    assert (found >= largest - 1e-12).all()
    assert (found - largest).mean() < 0.02
    same = [make_mondrian(random.normal(size=30)) for _ in range(3)]
    assert (highest_within(same).nulls[0] == np.max([one.nulls[0] for one in same], axis=0)).all()


def test_tolerated_changes_raise_no_more_alarms_within_clusters(digits):
    detector = tfbnood.Detector(
        None, "pixel_pca", reference=digits.train, tolerate=("brightness",)
    ).calibrate(digits.calibration, clusters=3)
    assert detector.calibration.within.least <= 100
    darker = tfbnood.data.change(digits.test, "brightness", seed=5)
    for images in (digits.test, darker):
        assert (detector.p_values(images) <= 0.1).mean() <= 0.1 + 3 * np.sqrt(0.09 / len(images))


def test_what_cannot_have_clusters_is_refused(brought_model, digits):
    batch = tfbnood.Detector(brought_model, "bn_shift", reference=digits.train[:100])
    with pytest.raises(StatisticError, match='scope "image"'):
        batch.calibrate(digits.calibration[:50], clusters=2)
    pixels = tfbnood.Detector(None, "pixel_pca", reference=digits.train[:50])
    with pytest.raises(DataError, match="at most a tenth of the reference images"):
        pixels.calibrate(digits.calibration, clusters=6)
    pixels = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    with pytest.raises(DataError, match=r"of which [0-9]+ have none of 5 images"):
        pixels.calibrate(digits.calibration[:5], clusters=9)


def test_rates_hold_in_each_cluster_on_average():
    """Scores whose spread differs between clusters: 5 % in each, where one null for all has 9 % and 1 %."""
    random = np.random.RandomState(2)
    rates = []
    for _ in range(300):
        nulls = [random.normal(scale=scale, size=99) for scale in (1, 3)]
        mondrian = make_mondrian(*nulls)
        for cluster, scale in enumerate((1, 3)):
            p_values = mondrian.p_values(random.normal(scale=scale, size=50), np.full(50, cluster))
            rates.append((p_values <= 0.05).mean())
    by_cluster = np.reshape(rates, (300, 2)).mean(axis=0)
    assert np.abs(by_cluster - 0.05).max() < 0.008
