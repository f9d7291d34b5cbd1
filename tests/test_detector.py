import inspect
import typing

import numpy as np
import pytest
from brought import PlainModel, trained_brought_model
from scipy.stats import binom, kstest

import tfbnood
from tfbnood.calibration.passes import alarm_level
from tfbnood.errors import (
    DataError,
    NotCalibratedError,
    NotFittedError,
    StatisticError,
)
from tfbnood.statistics.where import explain


@pytest.fixture(scope="module")
def model(digits):
    return trained_brought_model(digits.train)


@pytest.fixture(scope="module")
def by_image(model, digits):
    detector = tfbnood.Detector(model, "log_prob", reference=digits.train)
    return detector.calibrate(digits.calibration)


@pytest.fixture(scope="module")
def by_batch(model, digits):
    detector = tfbnood.Detector(model, "bn_delta", reference=digits.train, batch_size=16)
    return detector.calibrate(digits.calibration)


@pytest.fixture(scope="module", params=["image", "batch"])
def detector(request, by_image, by_batch):
    return by_image if request.param == "image" else by_batch


def test_a_brought_keras_model_with_stock_batch_normalisation_finds_outliers(detector, digits):
    found = detector.predict(255 - digits.test[64:128], fpr=0.05)
    alarms = detector.predict(digits.test[:64], fpr=0.05)
    assert found.is_ood.mean() > 0.5
    assert alarms.is_ood.mean() < 0.25
    assert found.bits_per_dim.shape == (64,)


def test_p_values_of_held_out_digits_are_uniform(by_image, digits):
    p_values = by_image.p_values(digits.test)
    assert kstest(p_values, "uniform").pvalue > 0.01
    assert abs((p_values <= 0.1).mean() - 0.1) < 0.05


def test_batch_p_values_of_held_out_digits_are_uniform_at_every_size(by_batch, digits):
    # The p-values of one request move together: the larger the requests, the fewer independent ones.
    for size, tolerance in ((1, 0.06), (4, 0.08), (16, 0.15)):
        requests = [digits.test[i : i + size] for i in range(0, 384, size)]
        p_values = np.concatenate([by_batch.p_values(request) for request in requests])
        assert abs(np.mean(p_values) - 0.5) < tolerance
        assert abs((p_values <= 0.2).mean() - 0.2) < tolerance


def test_predict_is_p_values_against_the_rate(detector, digits):
    images = np.concatenate([digits.test[:32], 255 - digits.test[32:64]])
    result = detector.predict(images, fpr=0.1)
    np.testing.assert_array_equal(result.score, detector.score(images))
    np.testing.assert_array_equal(result.p_value, detector.p_values(images))
    np.testing.assert_array_equal(result.is_ood, result.p_value <= 0.1)
    discoveries = detector.predict(images, fdr=0.2)
    np.testing.assert_array_equal(
        discoveries.is_ood, tfbnood.calibration.benjamini_hochberg(result.p_value, 0.2)
    )
    assert "false-discovery rate 0.2" in str(discoveries)


def test_results_say_what_they_assume(by_image, by_batch, digits):
    assert by_image.predict(digits.test[:5]).assumed == "every image on its own"
    batch = by_batch.predict(digits.test[:5], fpr=0.05)
    assert batch.assumed.startswith("homogeneous batch")
    assert batch.group_size == 4
    assert by_image.test_batch(digits.test[:5]).assumed == "every image on its own"
    assert by_batch.test_batch(digits.test[:5]).assumed.startswith("homogeneous batch")
    # A p-value is not the chance that the batch is fine, and the text must not say so.
    assert "the share of in-distribution batches that look as strange, by mean of bn_delta" in str(
        by_batch.test_batch(digits.test[:5])
    )


def test_methods_of_the_batch_test_go_with_the_scope(by_image, by_batch, digits):
    for method in tfbnood.batch_tests.BATCH_TESTS:
        assert by_image.test_batch(digits.test[:5], method=method).method == method
    assert by_image.test_batch(digits.test[:5]).method == "simes"
    assert by_image.test_batch(digits.test[:10]).method == "higher_criticism"
    for detector, method in ((by_image, "mean"), (by_batch, "simes")):
        with pytest.raises(
            StatisticError, match=f"method must be one of .*Received: method='{method}'"
        ):
            detector.test_batch(digits.test[:5], method=method)


def test_rank_counts_the_calibration_scores_at_or_below(detector, digits):
    images = digits.test[:20]
    null = detector.calibration.null_of_images(20)
    expected = [(null <= score).sum() for score in detector.score(images)]
    np.testing.assert_array_equal(detector.rank(images), expected)


def test_a_request_of_one_image_is_legal(detector, digits):
    result = detector.predict(digits.test[:1], fpr=0.05)
    assert len(result) == 1
    assert 0 < result.p_value[0] <= 1
    assert 0 < detector.test_batch(digits.test[:1]).p_value <= 1


def test_a_whole_batch_of_outliers_has_a_small_p_value(detector, digits):
    assert detector.test_batch(255 - digits.test[32:64]).p_value < 0.12
    assert detector.test_batch(digits.test[:32]).p_value > 0.05


def test_predict_before_calibrate_is_refused(model, digits):
    detector = tfbnood.Detector(model, "log_prob", reference=digits.train)
    for method in ("predict", "p_values", "rank", "test_batch"):
        with pytest.raises(NotCalibratedError, match=rf"call calibrate\(\) .* before {method}\(\)"):
            getattr(detector, method)(digits.test[:2])


def test_calibration_refuses_bad_images(model, digits):
    detector = tfbnood.Detector(model, "log_prob", reference=digits.train)
    with pytest.raises(DataError, match="held-out images must be finite"):
        detector.calibrate(np.where(digits.test > 250, np.nan, digits.test))
    with pytest.raises(StatisticError, match="at least 2 held-out images"):
        detector.calibrate(digits.test[:1])
    assert detector.calibration is None


def test_rates_that_make_no_sense_are_refused(detector, digits):
    with pytest.raises(DataError, match=r"fpr must be at least 1/\(n \+ 1\)"):
        detector.predict(digits.test[:4], fpr=1e-5)
    with pytest.raises(DataError, match="give fpr or fdr, not both"):
        detector.predict(digits.test[:4], fpr=0.1, fdr=0.1)


def test_a_model_without_batch_normalisation_is_refused_for_bn_statistics(digits):
    with pytest.raises(StatisticError, match="a model without any"):
        tfbnood.Detector(PlainModel(), "bn_delta", reference=digits.train)


def test_a_detector_without_reference_must_be_fitted_first(digits):
    detector = tfbnood.Detector(None, "pixel_pca")
    for method in ("score", "predict", "p_values", "test_batch", "calibrate", "explain"):
        with pytest.raises(NotFittedError, match=r"call fit\(\) with in-distribution images"):
            getattr(detector, method)(digits.test[:2])


def test_fit_holds_out_images_for_the_default_rate(digits):
    images = digits.train[:600]
    detector = tfbnood.Detector(None, "pixel_pca").fit(images)
    assert len(detector.calibration.null_of_images(1)) == 150
    assert len(detector.reference) == 450
    order = np.random.RandomState(0).permutation(600)
    expected = tfbnood.Detector(None, "pixel_pca", reference=images[np.sort(order[150:])])
    expected.calibrate(images[np.sort(order[:150])])
    np.testing.assert_array_equal(detector.p_values(digits.test), expected.p_values(digits.test))
    assert detector.predict(255 - digits.test).is_ood.all()
    assert "false-alarm rate 0.02;" in str(detector.predict(digits.test))
    # The fewest with which 0.01 is possible.
    assert len(detector.fit(images[:396]).calibration.null_of_images(1)) == 99
    assert "false-alarm rate 0.01;" in str(detector.predict(digits.test, fpr=0.01))
    other = tfbnood.Detector(None, "pixel_pca").fit(images, seed=1)
    assert not np.array_equal(other.reference, expected.reference)


def test_fit_takes_calibration_images_of_its_own(digits):
    detector = tfbnood.Detector(None, "pixel_pca")
    detector.fit(digits.train, calibration=iter(digits.calibration))
    expected = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    expected.calibrate(digits.calibration)
    np.testing.assert_array_equal(detector.p_values(digits.test), expected.p_values(digits.test))
    with pytest.raises(DataError, match=r"calibration must have \(height, width, channels\)"):
        detector.fit(digits.train, calibration=digits.test[:, :4])
    with pytest.raises(DataError, match=r"images must be at least 8, .* Received: 7 images"):
        detector.fit(digits.train[:7])


def test_fit_again_begins_anew(model, digits):
    detector = tfbnood.Detector(model, "log_prob").fit(digits.train)
    before = detector.p_values(digits.test[:50])
    detector.fit(digits.train[:100])
    assert not np.array_equal(detector.p_values(digits.test[:50]), before)
    detector.fit(digits.train)
    np.testing.assert_array_equal(detector.p_values(digits.test[:50]), before)


def test_a_statistic_that_is_fitted_makes_a_fitted_detector(digits):
    statistic = tfbnood.statistics.get("pixel_pca").fit(None, digits.train)
    detector = tfbnood.Detector(None, statistic).calibrate(digits.calibration)
    np.testing.assert_array_equal(detector.score(digits.test), statistic.score(digits.test))


def test_a_certified_rate_holds_with_its_confidence():
    """Over 400 calibrations by 60 scores each, the true rate of uniform scores is above 10 % in at most 5 %."""
    random = np.random.RandomState(0)
    above = []
    for _ in range(400):
        null = np.sort(random.uniform(size=60))
        level, rule = alarm_level(null, 0.1, confidence=0.95)
        rank = round(level * 61)
        above.append(1 - null[60 - rank] > 0.1)  # scores above the rank-th largest raise the alarm
    assert rule == "false-alarm rate at most 0.1 with 95 % confidence"
    assert 0.005 < np.mean(above) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_certified_alarms_are_fewer_and_said(by_image, by_batch, digits):
    found = by_image.predict(digits.test, fpr=0.05, confidence=0.95)
    rank = max(k for k in range(1, 300) if binom.sf(k - 1, 300, 0.05) >= 0.95)
    np.testing.assert_array_equal(found.is_ood, found.p_value <= rank / 301)
    assert found.is_ood.sum() < by_image.predict(digits.test, fpr=0.05).is_ood.sum()
    assert found.rule == "false-alarm rate at most 0.05 with 95 % confidence"
    with pytest.raises(DataError, match="calibrate on at least 2995 images"):
        by_image.predict(digits.test, fpr=0.001, confidence=0.95)
    with pytest.raises(DataError, match="confidence goes with fpr"):
        by_image.predict(digits.test, fdr=0.1, confidence=0.95)
    with pytest.raises(StatisticError, match=r'confidence needs a statistic of scope "image"'):
        by_batch.predict(digits.test[:9], fpr=0.2, confidence=0.9)


def test_the_decision_function_is_negative_for_an_alarm(detector, digits):
    images = np.concatenate([digits.test[:48], 255 - digits.test[48:64]])
    for fpr in (0.05, 0.1, 0.5):
        decision = detector.decision_function(images, fpr=fpr)
        np.testing.assert_array_equal(decision < 0, detector.predict(images, fpr=fpr).is_ood)
    begin = decision + detector.score(images)
    np.testing.assert_allclose(begin, begin[0], rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(detector.score_samples(images), -detector.score(images))


def test_few_calibration_images_have_a_default_rate_that_works(digits):
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    detector.calibrate(digits.calibration[:30])
    found = detector.predict(digits.test)
    assert found.rule == "false-alarm rate 0.1"
    np.testing.assert_array_equal(detector.decision_function(digits.test) < 0, found.is_ood)


def test_a_detector_explains_as_its_statistic_does(by_image, by_batch, digits):
    maps = by_image.explain(digits.test[:3])
    np.testing.assert_array_equal(maps, explain(by_image.statistic, digits.test[:3]))
    assert maps.shape == (3, 8, 8)
    with pytest.raises(StatisticError, match=r'scope "image"'):
        by_batch.explain(digits.test[:3])


def test_help_names_types_and_not_any():
    for name in ("fit", "calibrate", "score", "predict", "p_values", "test_batch", "explain"):
        images = inspect.signature(getattr(tfbnood.Detector, name)).parameters["images"]
        assert images.annotation == "Images"
    hints = typing.get_type_hints(tfbnood.Detector.predict, localns={"Images": np.ndarray})
    assert hints["return"] is tfbnood.detector.Detection


def test_a_batch_test_says_which_images_carry_the_evidence(by_image, digits):
    batch = np.concatenate([digits.test[:24], 255 - digits.test[:8]])
    for method in tfbnood.batch_tests.BATCH_TESTS:
        found = by_image.test_batch(batch, method=method)
        p_values = by_image.p_values(batch)
        value = tfbnood.batch_tests.BATCH_TESTS[method]
        for row, p_value, contribution in found.evidence:
            ordinary = np.where(np.arange(32) == row, 0.5, p_values)
            assert p_value == p_values[row]
            assert contribution == pytest.approx(
                value(np.sort(p_values)) - value(np.sort(ordinary))
            )
        carried = [one.contribution for one in found.evidence]
        assert carried == sorted(carried, reverse=True)
        assert {one.row for one in found.evidence[:8]} == set(range(24, 32))
    assert f"images {found.evidence[0].row}, " in str(found)
    assert f"image {found.evidence[0].row} (p = " in found._repr_html_()


def test_a_batch_without_alarm_names_no_images(by_image, digits):
    found = by_image.test_batch(digits.test[:40])
    assert found.p_value > 0.05
    assert "evidence" not in str(found)


def test_a_batch_statistic_says_which_images_carry_the_evidence(by_batch, model, digits):
    batch = np.concatenate([digits.test[:12], 255 - digits.test[:4]])
    found, scores = by_batch.test_batch(batch), by_batch.score(batch)
    usual = np.median(by_batch.calibration.null_of_images(16))
    for row, _, contribution in found.evidence:
        assert contribution == pytest.approx((scores[row] - usual) / 16)
    shift = tfbnood.Detector(model, "bn_shift", reference=digits.train[:300])
    found = shift.calibrate(digits.calibration[:60]).test_batch(batch)
    rows = shift.statistic.residuals(batch).astype(float)
    for row, _, contribution in found.evidence:
        assert contribution == pytest.approx(rows[row] @ rows.mean(axis=0) / 16)
    assert {one.row for one in found.evidence[:4]} == {12, 13, 14, 15}


def test_after_calibration_within_clusters_a_change_of_mix_is_forgiven(digits):
    """Half of the digits' classes alone: flagged against all, and not against their own clusters."""
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    detector.calibrate(np.concatenate([digits.calibration, digits.test[::2]]), clusters=8)
    images, labels = digits.test[1::2], digits.test_labels[1::2]
    flagged = {True: 0, False: 0}
    for label in range(10):
        batch = images[labels == label]
        flagged[True] += detector.test_batch(batch).p_value <= 0.05
        flagged[False] += detector.test_batch(batch, forgive_mix=False).p_value <= 0.05
        assert "cluster" in detector.test_batch(batch).assumed
    assert flagged[True] < flagged[False]
    outliers = np.concatenate([images[labels == 3], 255 - images[:5]])
    assert detector.test_batch(outliers).p_value <= 0.01


def test_forgiving_a_mix_needs_clusters(by_image, digits):
    with pytest.raises(StatisticError, match=r"forgive_mix needs .*clusters=10"):
        by_image.test_batch(digits.test[:20], forgive_mix=True)
