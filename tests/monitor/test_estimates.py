"""Since when and how many: estimates against brute force, and their coverage."""

import numpy as np
import pytest
from scipy.stats import norm

from tfbnood.monitor.bets import LEVELS, SHARES
from tfbnood.monitor.estimates import likely_onsets, onset, share


def test_the_onset_s_posterior_is_the_mean_product_of_bets_since():
    p_values = np.concatenate([np.random.default_rng(0).random(30), np.full(6, 0.02)])
    used = np.arange(36) % 3 == 0
    bets = np.where(p_values[:, None] <= LEVELS, 1 - SHARES + SHARES / LEVELS, 1 - SHARES)
    bets[~used] = 1
    posterior = np.array([bets[start:].prod(axis=0).mean() for start in range(36)])
    below = posterior.cumsum() / posterior.sum()
    found = onset(p_values, used, 500)
    assert found.value == 500 + posterior.argmax()
    assert found.low == 500 + np.argmax(below >= 0.025)
    assert found.high == 500 + np.argmax(below >= 0.975)


@pytest.mark.parametrize("shares", [1.0, 0.3])
def test_the_onset_s_interval_covers_the_true_one(shares):
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(150):
        p_values = rng.random(260)
        strange = rng.random(60) < shares
        p_values[200:] = np.where(strange, rng.random(60) * 0.03, p_values[200:])
        found = onset(p_values, np.ones(260, bool), 0)
        assert found.low <= found.value <= found.high
        covered.append(found.low <= 200 <= found.high)
    assert np.mean(covered) > 0.9


KINDS = {
    "beyond all": lambda rng, size: np.full(size, 9.0),
    "in the top 10 %": lambda rng, size: norm.ppf(0.9 + 0.1 * rng.random(size)),
    "shifted by 2.5": lambda rng, size: rng.normal(2.5, size=size),
    "shifted by 2, closer together": lambda rng, size: rng.normal(2, 0.5, size=size),
}


@pytest.mark.parametrize("true", [0.05, 0.25, 1.0])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_share_is_found_for_several_kinds_of_outliers(kind, true):
    rng = np.random.default_rng(2)
    values = []
    for _ in range(20):
        held_out = np.sort(rng.normal(size=2500))
        scores = rng.normal(size=600)
        strange = rng.random(600) < true
        scores[strange] = kind(rng, strange.sum())
        p_values = (1 + 2500 - np.searchsorted(held_out, scores)) / 2501
        found = share(p_values)
        assert 0 <= found.low <= found.value <= found.high <= 1
        values.append(found.value)
    assert np.mean(values) == pytest.approx(true, abs=0.05)


def test_the_share_s_interval_covers_outliers_that_are_closer_together_than_inliers():
    # With one spread for all kinds the interval covered 0.25 in 62 % of these streams.
    rng = np.random.default_rng(4)
    covered = []
    for _ in range(60):
        held_out, scores = np.sort(rng.normal(size=2500)), rng.normal(size=400)
        strange = rng.random(400) < 0.25
        scores[strange] = rng.normal(2.3, 0.5, size=strange.sum())
        found = share((1 + 2500 - np.searchsorted(held_out, scores)) / 2501)
        covered.append(found.low <= 0.25 <= found.high)
    assert np.mean(covered) > 0.85


def test_the_share_since_one_of_several_onsets_is_the_mean_over_them():
    rng = np.random.default_rng(5)
    p_values = np.concatenate([rng.random(60), rng.random(30) * 0.05])
    starts = [20, 50, 60]
    each = [share(p_values[start:]) for start in starts]
    found = share(p_values, starts)
    assert found.value == pytest.approx(np.mean([one.value for one in each]), abs=0.01)
    assert found.low == pytest.approx(min(one.low for one in each), abs=0.05)
    assert found.high == pytest.approx(max(one.high for one in each), abs=0.05)
    assert share(p_values, [20]) == each[0]


def test_likely_onsets_are_as_likely_as_each_other():
    p_values = np.concatenate([np.random.default_rng(0).random(80), np.full(4, 0.02)])
    bets = np.where(p_values[:, None] <= LEVELS, 1 - SHARES + SHARES / LEVELS, 1 - SHARES)
    posterior = np.array([bets[start:].prod(axis=0).mean() for start in range(84)])
    below = posterior.cumsum() / posterior.sum()
    expected = [np.argmax(below >= (number + 0.5) / 16) for number in range(16)]
    assert likely_onsets(p_values, np.ones(84, bool)) == expected


def test_no_outliers_are_hardly_any_share():
    found = share(np.random.default_rng(3).random(2000))
    assert found.value < 0.03
    assert found.low == 0
