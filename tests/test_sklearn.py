"""scikit-learn's shape: the checks of its common suite, pipelines, clones and grids.

What the common suite asks and does not hold is in `EXPECTED`, with the reason.
"""

import numpy as np
import pytest
from brought import trained_brought_model
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import tfbnood
from tfbnood.errors import DataError, StatisticError
from tfbnood.outlier_detector import OutlierDetector

ROWS = load_digits().data  # [1797, 64] in 0–16
EXPECTED = {
    "check_estimators_pickle": "a fitted detector holds compiled TensorFlow functions; detector_.save() writes it as "
    "files that need no pickle to be read",
}


# Tables as images of one row of pixels, with the values of the training set as black and white: the suite has neither
# images nor values in 0–255.
@parametrize_with_checks(
    [OutlierDetector(statistic="pixel_pca", value_range=None)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_the_common_suite(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def fitted():
    made = OutlierDetector(
        statistic="pixel_pca", image_shape=(8, 8, 1), value_range=(0, 16), fpr=0.05
    )
    return made.fit(ROWS[:1000])


def test_it_decides_as_the_detector_does(fitted):
    images = np.rint(ROWS[1000:] / 16 * 255).reshape(-1, 8, 8, 1)
    found = fitted.detector_.predict(images, fpr=0.05)
    np.testing.assert_array_equal(fitted.predict(ROWS[1000:]), np.where(found.is_ood, -1, 1))
    np.testing.assert_allclose(fitted.score_samples(ROWS[1000:]), -found.score)
    np.testing.assert_allclose(fitted.decision_function(ROWS[1000:]), -found.score - fitted.offset_)
    assert (fitted.predict(16 - ROWS[1000:]) == -1).all()


def test_signs_are_those_of_scikit_learn_s_own(fitted):
    """Where both are sure, an isolation forest and ours agree on which side is negative."""
    mixed = np.concatenate([ROWS[1000:1100], 16 - ROWS[1000:1100]])
    forest = IsolationForest(random_state=0).fit(ROWS[:1000])
    ours, theirs = fitted.decision_function(mixed), forest.decision_function(mixed)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.5
    assert ours[:100].mean() > ours[100:].mean()


def test_images_are_taken_as_they_are(digits):
    made = OutlierDetector(statistic="pixel_pca").fit(digits.train)
    assert made.image_shape_ == (8, 8, 1)
    assert (made.predict(255 - digits.test) == -1).all()
    with pytest.raises(DataError, match=r"X must have \(height, width, channels\)=\(8, 8, 1\)"):
        made.predict(digits.test[:, :4])
    with pytest.raises(DataError, match="image_shape must fit X"):
        OutlierDetector(statistic="pixel_pca", image_shape=(4, 4, 1)).fit(digits.train)


def test_values_beyond_the_range_are_refused_unless_it_was_learned():
    made = OutlierDetector(statistic="pixel_pca", value_range=(0, 16)).fit(ROWS[:100])
    with pytest.raises(DataError, match="must lie in 0–255"):
        made.predict(ROWS[:5] + 1)
    learned = OutlierDetector(statistic="pixel_pca", value_range=None).fit(ROWS[:100])
    np.testing.assert_array_equal(
        learned.score_samples(ROWS[100:105] + 100), learned.score_samples(np.full((5, 64), 16.0))
    )


def test_a_statistic_of_batches_is_refused(digits):
    model = trained_brought_model(digits.train)
    with pytest.raises(StatisticError, match=r'statistic must be of scope "image"'):
        OutlierDetector(model, "bn_delta").fit(digits.train)


def test_a_clone_shares_the_model_and_nothing_that_was_learned(digits):
    model = trained_brought_model(digits.train)
    for made in (
        OutlierDetector(model, "log_prob", fpr=0.05).fit(digits.train),
        tfbnood.Detector(model, "bn_moments", components=3).fit(digits.train),
    ):
        copy = clone(made)
        assert copy.get_params() == made.get_params()
        assert copy.get_params()["model"] is model
        assert not hasattr(copy, "detector_")
        assert getattr(copy, "calibration", None) is None
    statistic = tfbnood.statistics.get("pixel_pca", components=3)
    copy = clone(tfbnood.Detector(None, statistic).fit(digits.train))
    assert "not fitted" in repr(copy)
    assert copy.statistic.components == 3


def test_a_grid_searches_settings():
    labels = np.r_[np.ones(400), -np.ones(100)]
    mixed = np.concatenate([ROWS[:400], 16 - ROWS[400:500]])
    grid = GridSearchCV(
        OutlierDetector(statistic="pixel_pca", value_range=(0, 16)),
        {"settings": [{"components": 2}, {"components": 20}]},
        scoring="roc_auc",
        # Fitted to inliers alone.
        cv=[(np.arange(200), np.arange(200, 500))],
        refit=False,
    )
    grid.fit(mixed, labels)
    assert (grid.cv_results_["mean_test_score"] > 0.9).all()


def test_both_end_a_pipeline():
    def as_pictures(rows):
        return rows.reshape(-1, 8, 8, 1)

    scale = MinMaxScaler((0, 255), clip=True)
    detector = tfbnood.Detector(None, "pixel_pca")
    pipeline = make_pipeline(scale, FunctionTransformer(as_pictures), detector).fit(ROWS[:1000])
    assert pipeline.predict(16 - ROWS[1000:1100]).is_ood.all()
    scores = pipeline.score_samples(ROWS[1000:1100])
    np.testing.assert_array_equal(pipeline.score(ROWS[1000:1100]), -scores)
    np.testing.assert_array_equal(
        pipeline.decision_function(ROWS[1000:1100]) < 0, pipeline.predict(ROWS[1000:1100]).is_ood
    )
    assert "pixel_pca" in repr(pipeline)
    outliers = OutlierDetector(statistic="pixel_pca", image_shape=(8, 8, 1))
    pipeline = make_pipeline(MinMaxScaler((0, 255), clip=True), outliers).fit(ROWS[:1000])
    assert (pipeline.predict(16 - ROWS[1000:1100]) == -1).all()
    assert pipeline.set_params(outlierdetector__fpr=0.1).get_params()["outlierdetector__fpr"] == 0.1


def test_parameters_are_those_of_the_next_fit(digits):
    detector = tfbnood.Detector(None, "pixel_pca", components=5).fit(digits.train)
    before = detector.score(digits.test)
    detector.set_params(components=2)
    np.testing.assert_array_equal(detector.score(digits.test), before)
    assert detector.get_params()["components"] == 2
    assert detector.fit(digits.train).statistic.components == 2
    detector.set_params(statistic="pixel_knn", tolerate=("blur",))
    assert "components" not in detector.get_params()
    assert detector.fit(digits.train).statistic.name == "pixel_knn"
    assert detector.tolerate == ("blur",)
    with pytest.raises(StatisticError, match="pixel_knn does not take these settings"):
        detector.set_params(no_such_setting=3)


def test_a_loaded_detector_knows_its_parameters_and_can_be_fitted_again(digits, tmp_path):
    detector = tfbnood.Detector(None, "pixel_pca", components=5).fit(digits.train)
    detector.save(tmp_path / "saved")
    again = tfbnood.Detector.load(tmp_path / "saved")
    assert again.get_params()["components"] == 5
    again.fit(digits.train)
    np.testing.assert_array_equal(again.score(digits.test), detector.score(digits.test))
