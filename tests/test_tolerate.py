"""Changes that a detector tolerates: no more alarms than its rate allows, and known again after saving."""

import json

import numpy as np
import pytest

import tfbnood
from tfbnood.calibration.conformal import Calibration, calibrate, conformal_p_values, highest
from tfbnood.data.changes import change
from tfbnood.errors import DataError


@pytest.fixture(scope="module")
def tolerant(digits):
    detector = tfbnood.Detector(
        None, "pixel_pca", reference=digits.train, tolerate=("blur", "brightness")
    )
    return detector.calibrate(digits.calibration)


def test_the_p_value_is_the_largest_over_clean_and_changed_images(tolerant, digits):
    scores = tolerant.score(digits.test)
    expected = [
        conformal_p_values(scores, calibrate(tolerant.statistic, images).null_of_images(1))
        for images in (
            digits.calibration,
            change(digits.calibration, "blur", seed=1),
            change(digits.calibration, "brightness", seed=1),
        )
    ]
    np.testing.assert_array_equal(tolerant.p_values(digits.test), np.max(expected, axis=0))


@pytest.mark.parametrize("kind", [None, "blur", "brightness"])
def test_each_kind_raises_no_more_alarms_than_the_rate_allows(tolerant, digits, kind):
    images = digits.test if kind is None else change(digits.test, kind, seed=7)
    alarms = tolerant.predict(images, fpr=0.1).is_ood.mean()
    assert alarms <= 0.1 + 4 * np.sqrt(0.09 / len(images))


def test_without_tolerance_changed_images_raise_alarms(digits):
    strict = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    strict.calibrate(digits.calibration)
    changed = change(digits.test, "shift", seed=7)
    assert strict.predict(changed, fpr=0.1).is_ood.mean() > 0.2


def test_tolerance_is_saved_and_exported(tolerant, tmp_path, digits):
    tolerant.save(tmp_path / "detector")
    again = tfbnood.Detector.load(tmp_path / "detector")
    assert again.tolerate == ("blur", "brightness")
    np.testing.assert_array_equal(
        again.p_values(digits.test[:9]), tolerant.p_values(digits.test[:9])
    )
    version = tolerant.export(tmp_path / "model", fpr=0.05)
    about = json.loads((version / "assets.extra" / "detector.json").read_text())["about"]
    assert about["tolerate"] == ["blur", "brightness"]


def test_unknown_changes_are_refused_before_any_work(digits):
    with pytest.raises(DataError, match="tolerate must hold names of changes"):
        tfbnood.Detector(None, "pixel_pca", reference=digits.train, tolerate=("jpg",))
    with pytest.raises(DataError, match=r'tolerate=\("jpeg",\)'):
        tfbnood.Detector(None, "pixel_pca", reference=digits.train, tolerate="jpeg")


def test_the_highest_of_calibrations_gives_the_highest_of_p_values():
    random = np.random.RandomState(0)
    nulls = [np.sort(random.normal(size=50)) for _ in range(3)]
    merged = highest([Calibration({1: null}, {}) for null in nulls]).null_of_images(1)
    scores = np.concatenate([random.normal(size=200), *nulls])
    expected = np.max([conformal_p_values(scores, null) for null in nulls], axis=0)
    np.testing.assert_array_equal(conformal_p_values(scores, merged), expected)
