"""Tests of whole batches: their formulas, and that they are exact under the null, whatever the scores look like."""

import numpy as np
import pytest
from scipy import stats

from tfbnood.calibration.batch_tests import (
    BATCH_TESTS,
    batch_p_value,
    batch_p_value_within,
    contributions,
    fisher,
    higher_criticism,
    kolmogorov_smirnov,
    simes,
)
from tfbnood.calibration.conformal import conformal_p_values
from tfbnood.errors import DataError

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


@pytest.mark.parametrize("test", BATCH_TESTS)
def test_with_one_cluster_it_is_the_test_without(test):
    random = np.random.RandomState(4)
    for shift in (0, 0.5, 1):
        batch, null = random.normal(shift, size=30), random.normal(size=200)
        whole = batch_p_value(batch, null, test, permutations=4999)
        within = batch_p_value_within(batch, np.zeros(30, int), [null], test, permutations=4999)
        assert within == pytest.approx(whole, abs=0.03)


@pytest.mark.parametrize("test", BATCH_TESTS)
@pytest.mark.parametrize("counts", [(20, 20, 0), (0, 0, 40), (1, 5, 34)])
def test_any_mix_of_clusters_has_uniform_p_values(test, counts):
    """Scores of the third cluster are much higher, as those of one class can be: without clusters all are flagged."""
    random = np.random.RandomState(5)
    clusters, shifts, sizes = np.repeat([0, 1, 2], counts), np.array([0.0, 0.3, 2.0]), (80, 150, 60)
    within, pooled = [], []
    for _ in range(300):
        nulls = [random.normal(shift, size=size) for shift, size in zip(shifts, sizes, strict=True)]
        batch = random.normal(shifts[clusters])
        within.append(batch_p_value_within(batch, clusters, nulls, test))
        pooled.append(batch_p_value(batch, np.concatenate(nulls), test))
    for level in (0.05, 0.2, 0.5):
        assert np.mean(np.array(within) <= level) <= level + 3 * np.sqrt(level * (1 - level) / 300)
    assert np.mean(np.array(within) <= 0.5) > 0.25
    if counts[2] == 40 and test != "simes":
        assert np.mean(np.array(pooled) <= 0.05) > 0.9


@pytest.mark.parametrize("test", BATCH_TESTS)
def test_within_clusters_contaminated_batches_are_found(test):
    random = np.random.RandomState(6)
    nulls = [random.normal(shift, size=200) for shift in (0, 3)]
    clusters = random.randint(0, 2, 64)
    batch = random.normal(3.0 * clusters)
    batch[:16] += 4
    assert batch_p_value_within(batch, clusters, nulls, test) <= 0.01


def test_random_subsets_are_uniform():
    from tfbnood.calibration.batch_tests import _subsets

    large = _subsets(np.random.RandomState(0), 2_000, 200, 300)
    assert (np.diff(large, axis=1) > 0).all()
    often = np.bincount(large.ravel(), minlength=300) / 2_000
    assert np.abs(often - 2 / 3).max() < 5 * np.sqrt(2 / 9 / 2_000)
    drawn = _subsets(np.random.RandomState(0), 60_000, 3, 6)
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(found) == 20
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("test", BATCH_TESTS)
def test_contributions_are_what_the_value_loses_when_an_image_is_ordinary(test):
    p_values = np.random.RandomState(7).permutation(np.r_[np.linspace(0.01, 1, 30), [0.002] * 8])
    found = contributions(p_values, test)
    whole = BATCH_TESTS[test](np.sort(p_values))
    for row, value in enumerate(found):
        changed = np.sort(np.where(np.arange(len(p_values)) == row, 0.5, p_values))
        expected = max(0, whole - BATCH_TESTS[test](changed)) if p_values[row] < 0.5 else 0
        assert value == pytest.approx(expected)
    assert (found[p_values == 0.002] > 0).all()
    assert (found[p_values > 0.6] == 0).all()


def test_batches_and_clusters_of_other_lengths_are_refused():
    with pytest.raises(DataError, match="Received: 3 and 2"):
        batch_p_value_within(np.ones(3), np.zeros(2, int), [np.ones(9)], "simes")
