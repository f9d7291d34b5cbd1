"""Tests of whole batches: their formulas, and that they are exact under the null, whatever the scores look like."""

import numpy as np
import pytest
from scipy import stats

from tfbnood.calibration.batch_tests import (
    BATCH_TESTS,
    batch_p_value,
    fisher,
    higher_criticism,
    kolmogorov_smirnov,
    simes,
)
from tfbnood.calibration.conformal import conformal_p_values

P_VALUES = np.sort(np.random.RandomState(0).uniform(size=(5, 30)), axis=1)


def test_formulas_are_scipy_s():
    for row, value in zip(P_VALUES, fisher(P_VALUES), strict=True):
        assert value == pytest.approx(stats.combine_pvalues(row, "fisher").statistic)
    for row, value in zip(P_VALUES, kolmogorov_smirnov(P_VALUES), strict=True):
        assert value == pytest.approx(stats.kstest(row, "uniform", alternative="greater").statistic)
    for row, value in zip(P_VALUES, simes(P_VALUES), strict=True):
        assert np.exp(-value) == pytest.approx(stats.false_discovery_control(row).min())


def test_higher_criticism_is_the_largest_standardised_excess():
    row = np.array([0.1, 0.2, 0.3, 0.9])
    # p below 1/n = 0.25 counts as 0.25; the first half only.
    expected = max(2 * (share - 0.25) / np.sqrt(0.25 * 0.75) for share in (0.25, 0.5))
    assert higher_criticism(row) == pytest.approx(expected)


@pytest.mark.parametrize("test", BATCH_TESTS)
@pytest.mark.parametrize(("calibration", "count"), [(40, 16), (300, 64), (20, 50), (200, 1)])
def test_p_values_are_uniform_under_the_null(test, calibration, count):
    random = np.random.RandomState(1)
    draws = ((random.gamma(1, size=count), random.gamma(1, size=calibration)) for _ in range(300))
    p_values = np.array([batch_p_value(batch, null, test) for batch, null in draws])
    # Discrete p-values may be larger than uniform ones, never smaller.
    for level in (0.05, 0.2, 0.5):
        assert (p_values <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / 300)
    if (test, count) != ("higher_criticism", 1):  # It does not look below 1/n.
        assert (p_values <= 0.5).mean() > 0.2


@pytest.mark.parametrize("test", BATCH_TESTS)
def test_contaminated_batches_are_found(test):
    random = np.random.RandomState(2)
    batch = np.concatenate([random.normal(size=48), random.normal(4, size=16)])
    assert batch_p_value(batch, random.normal(size=500), test) <= 0.01


@pytest.mark.parametrize("test", BATCH_TESTS)
def test_scores_that_are_all_the_same_are_no_alarm(test):
    assert batch_p_value(np.ones(8), np.ones(50), test, permutations=99) > 0.5


def test_a_batch_of_one_is_its_conformal_p_value():
    random = np.random.RandomState(3)
    calibration, score = random.normal(size=99), np.array([1.7])
    expected = conformal_p_values(score, calibration)[0]
    assert batch_p_value(score, calibration, "simes", permutations=20_000) == pytest.approx(
        expected, abs=0.01
    )
