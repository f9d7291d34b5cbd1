import numpy as np
import pytest
from brought import PlainModel, trained_brought_model
from scipy.stats import kstest

import tfbnood
from tfbnood.errors import (
    DataError,
    NotCalibratedError,
    StatisticError,
)


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
    with pytest.raises(StatisticError, match="a model with none"):
        tfbnood.Detector(PlainModel(), "bn_delta", reference=digits.train)
