from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import kstest

from tfbnood.calibration.conformal import (
    benjamini_hochberg,
    calibrate,
    check_false_alarm_rate,
    conformal_p_values,
)
from tfbnood.errors import DataError, StatisticError


def test_conformal_p_values_count_the_scores_at_or_above():
    rng = np.random.default_rng(0)
    scores, calibration = rng.integers(0, 9, 50), rng.integers(0, 9, 30)
    expected = [(1 + sum(c >= s for c in calibration)) / 31 for s in scores]
    np.testing.assert_allclose(conformal_p_values(scores, calibration), expected)


def test_conformal_p_values_are_uniform_under_the_null():
    rng = np.random.default_rng(1)
    p = conformal_p_values(rng.normal(size=4000), rng.normal(size=4000))
    assert kstest(p, "uniform").pvalue > 0.01


def test_benjamini_hochberg_is_the_step_up_rule_and_controls_false_discoveries():
    p = np.array([0.9, 0.001, 0.035, 0.02, 0.04])
    # Sorted: .001 ≤ .01, .02 ≤ .02, .035 > .03, .04 ≤ .04: the fourth pulls in the third.
    np.testing.assert_array_equal(benjamini_hochberg(p, 0.05), [False, True, True, True, True])
    rng = np.random.default_rng(2)
    shares = []
    for _ in range(300):
        null = rng.uniform(size=80)
        rejected = benjamini_hochberg(np.concatenate([null, np.full(20, 1e-6)]), 0.1)
        shares.append(rejected[:80].sum() / max(rejected.sum(), 1))
    assert np.mean(shares) < 0.1


def stepped_up(p, fdr):
    """The step-up rule as Benjamini and Hochberg wrote it."""
    ordered = sorted(p)
    below = [value for rank, value in enumerate(ordered, 1) if value <= fdr * rank / len(p)]
    return [value <= below[-1] if below else False for value in p]


def test_benjamini_hochberg_rejects_what_the_step_up_rule_rejects():
    rng = np.random.default_rng(3)
    rejections = 0
    for _ in range(300):
        p = rng.uniform(size=rng.integers(1, 60)) ** rng.integers(1, 4)
        fdr = rng.uniform(0.01, 0.5)
        rejected = benjamini_hochberg(p, fdr)
        assert rejected.dtype == bool
        assert rejected.tolist() == stepped_up(p, fdr)
        rejections += rejected.sum()
    assert rejections > 500


@pytest.mark.parametrize("scores", [19, 99, 300])
def test_benjamini_hochberg_is_exact_for_ties_and_p_values_on_a_bound(scores):
    rng = np.random.default_rng(scores)
    on_a_bound = 0
    for _ in range(200):
        ranks = [int(rank) for rank in rng.integers(1, 2 + scores // 4, size=rng.integers(1, 60))]
        exact = [Fraction(rank, scores + 1) for rank in ranks]
        fdr = Fraction(int(rng.integers(1, 10)), 20)
        rejected = benjamini_hochberg(np.array(ranks) / (scores + 1), float(fdr))
        assert rejected.tolist() == stepped_up(exact, fdr)
        bounds = {fdr * rank / len(exact) for rank in range(1, len(exact) + 1)}
        on_a_bound += len(bounds.intersection(exact))
    assert scores == 300 or on_a_bound > 100


@pytest.mark.parametrize("fdr", [0, 1, -0.5, 2])
def test_a_false_discovery_rate_outside_0_1_is_refused(fdr):
    with pytest.raises(DataError, match=r"fdr must lie in \(0, 1\)"):
        benjamini_hochberg(np.array([0.5]), fdr)


def test_a_false_alarm_rate_that_cannot_be_resolved_is_refused():
    check_false_alarm_rate(1 / 100, np.zeros(99))
    with pytest.raises(DataError, match=r"at least 1/\(n \+ 1\) = 0.0101 with n=98"):
        check_false_alarm_rate(0.01, np.zeros(98))
    with pytest.raises(DataError, match=r"fpr must lie in \(0, 1\)"):
        check_false_alarm_rate(0.0, np.zeros(98))


class Recording:
    """A statistic that scores an image by its first pixel and remembers its requests."""

    def __init__(self, scope):
        self.scope = scope
        self.requests = []

    def score(self, images, progress=False):
        self.requests.append(images[:, 0, 0, 0])
        return images[:, 0, 0, 0].astype(float)


IMAGES = np.arange(200, dtype=np.uint8).reshape(200, 1, 1, 1)


def test_a_batch_statistic_is_calibrated_in_disjoint_requests_of_every_size():
    statistic = Recording("batch")
    calibration = calibrate(statistic, IMAGES)
    assert list(calibration.image_scores) == [1, 2, 4, 8, 16, 32, 64]
    for size in calibration.image_scores:
        requests = [request for request in statistic.requests if len(request) == size]
        used = np.concatenate(requests)
        assert len(set(used)) == len(used) == len(requests) * size >= 0.9 * min(100, 50 * size)
        np.testing.assert_array_equal(calibration.image_scores[size], np.sort(used))
        means = np.sort([request.mean() for request in requests])
        np.testing.assert_allclose(calibration.batch_scores[size], means)


def test_an_image_statistic_is_scored_once():
    statistic = Recording("image")
    calibration = calibrate(statistic, IMAGES)
    assert len(statistic.requests) == 1
    np.testing.assert_array_equal(calibration.null_of_images(50), np.arange(200))
    assert not calibration.batch_scores


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 2), (3, 2), (63, 32), (64, 64), (999, 64)])
def test_the_largest_calibrated_size_that_fits_a_request_is_used(count, size):
    assert calibrate(Recording("batch"), IMAGES).group_size(count) == size


def test_too_few_images_and_sizes_without_1_are_refused():
    with pytest.raises(StatisticError, match=r"at least 2 held-out images .*Received: 1 images"):
        calibrate(Recording("image"), IMAGES[:1])
    with pytest.raises(StatisticError, match="the group size 1 among group_sizes"):
        calibrate(Recording("batch"), IMAGES, group_sizes=(4, 8))
