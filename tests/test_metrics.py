import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from tfbnood.errors import DataError
from tfbnood.metrics import (
    METRICS,
    Estimate,
    auroc,
    average_precision,
    bootstrap_interval,
    estimates,
    fpr_at_tpr,
)


def _scores(seed, inliers=70, outliers=45, levels=None):
    random = np.random.RandomState(seed)
    is_ood = np.r_[np.zeros(inliers, int), np.ones(outliers, int)]
    scores = random.normal(size=len(is_ood)) + is_ood
    if levels:  # few distinct values: many ties within and across the classes
        scores = np.floor(scores * levels) / levels
    order = random.permutation(len(is_ood))
    return is_ood[order], scores[order]


@pytest.mark.parametrize("levels", [None, 1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_metrics_are_those_of_scikit_learn_with_and_without_ties(seed, levels):
    is_ood, scores = _scores(seed, levels=levels)
    false_alarms, found, _ = roc_curve(is_ood, scores, drop_intermediate=False)
    assert auroc(is_ood, scores) == pytest.approx(roc_auc_score(is_ood, scores), abs=1e-12)
    assert average_precision(is_ood, scores) == pytest.approx(
        average_precision_score(is_ood, scores), abs=1e-12
    )
    assert fpr_at_tpr(is_ood, scores) == pytest.approx(false_alarms[found >= 0.95][0], abs=1e-12)


def test_scores_that_are_all_equal_are_chance():
    is_ood = [0, 0, 0, 1]
    assert auroc(is_ood, [7.0] * 4) == 0.5
    assert average_precision(is_ood, [7.0] * 4) == 0.25
    assert fpr_at_tpr(is_ood, [7.0] * 4) == 1.0


def test_a_perfect_and_an_inverted_order():
    is_ood, scores = np.arange(10) >= 5, np.arange(10.0)
    assert (auroc(is_ood, scores), auroc(is_ood, -scores)) == (1.0, 0.0)
    assert average_precision(is_ood, scores) == 1.0
    assert (fpr_at_tpr(is_ood, scores), fpr_at_tpr(is_ood, -scores)) == (0.0, 1.0)


def test_auroc_is_the_share_of_pairs_in_the_right_order():
    is_ood, scores = _scores(3, inliers=20, outliers=15, levels=2)
    differences = scores[is_ood == 1][:, None] - scores[is_ood == 0]
    assert auroc(is_ood, scores) == pytest.approx(((np.sign(differences) + 1) / 2).mean())


def test_rounding_does_not_ask_for_one_outlier_more():
    # 0.07 · 100 > 7 in floating point; the seventh outlier lies above all inliers, the eighth below.
    is_ood = np.r_[np.ones(100), np.zeros(10)]
    scores = np.r_[np.full(7, 2.0), np.full(93, 0.0), np.full(10, 1.0)]
    assert fpr_at_tpr(is_ood, scores, tpr=0.07) == 0.0


def test_the_interval_covers_the_true_auroc_as_often_as_it_says():
    true = 0.5 * (1 + math.erf(0.5))  # Φ(1/√2) for two unit Gaussians one apart
    covered = []
    for seed in range(200):
        low, high = bootstrap_interval(*_scores(seed), seed=seed)
        covered.append(low <= true <= high)
    assert 0.89 <= np.mean(covered) <= 0.99


def test_the_interval_is_that_of_a_bootstrap_by_hand():
    is_ood, scores = _scores(5, levels=4)
    random = np.random.RandomState(0)
    inliers, outliers = np.flatnonzero(is_ood == 0), np.flatnonzero(is_ood == 1)
    found = []
    for _ in range(1000):
        rows = np.r_[random.choice(inliers, len(inliers)), random.choice(outliers, len(outliers))]
        found.append(average_precision_score(is_ood[rows], scores[rows]))
    interval = bootstrap_interval(is_ood, scores, metric="average_precision", resamples=1000)
    np.testing.assert_allclose(interval, np.percentile(found, [2.5, 97.5]), atol=0.015)


def test_estimates_are_the_values_with_intervals_and_depend_on_the_seed_alone():
    is_ood, scores = _scores(1)
    found = estimates(is_ood, scores, seed=4)
    assert set(found) == set(METRICS)
    assert found["auroc"].value == auroc(is_ood, scores)
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in found.values())
    assert found == estimates(is_ood, scores, seed=4) != estimates(is_ood, scores, seed=5)


def test_resamples_in_pieces_give_an_interval_as_well(monkeypatch):
    is_ood, scores = _scores(1)
    whole = estimates(is_ood, scores)["auroc"]
    monkeypatch.setattr("tfbnood.metrics._COUNTS_AT_ONCE", 1000)
    pieces = estimates(is_ood, scores)["auroc"]
    assert pieces.value == whole.value
    np.testing.assert_allclose([pieces.low, pieces.high], [whole.low, whole.high], atol=0.03)


def test_an_estimate_prints_value_and_half_width():
    assert str(Estimate(0.9, 0.86, 0.92)) == "0.900 ±0.030"


@pytest.mark.parametrize(
    ("is_ood", "scores", "said"),
    [
        ([0, 1], [1.0], "one length"),
        ([1, 1], [1.0, 2.0], "both 0"),
        ([0, 2], [1.0, 2.0], "both 0"),
        ([0, 1], [1.0, math.nan], "1 NaN"),
    ],
)
def test_what_cannot_be_measured_is_said(is_ood, scores, said):
    with pytest.raises(DataError, match=said):
        auroc(is_ood, scores)


def test_settings_out_of_range_are_said():
    for settings, said in [
        ({"metric": "f1"}, "Received: 'f1'"),
        ({"level": 1.0}, "level"),
        ({"resamples": 0}, "resamples=0"),
    ]:
        with pytest.raises(DataError, match=said):
            bootstrap_interval([0, 1], [0.0, 1.0], **settings)
    with pytest.raises(DataError, match="tpr=0"):
        fpr_at_tpr([0, 1], [0.0, 1.0], tpr=0)
