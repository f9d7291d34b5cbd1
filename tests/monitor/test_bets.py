"""The bets are fair, and what they win is what the formulas state."""

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

from tfbnood.monitor.bets import LEVELS, SHARES, Evidence, log_bets, unspent


def simulated(p_values):
    """`log M_t` and `log S_t` of many streams at once, `[2, streams, t]`."""
    detector = np.zeros((len(p_values), len(LEVELS)))
    martingale = detector.copy()
    found = []
    for t, column in enumerate(p_values.T):
        won = np.exp(log_bets(column))
        detector = (1 + detector) * won
        martingale = (martingale + unspent(t) - unspent(t + 1)) * won
        total = martingale.mean(axis=1) + unspent(t + 1)
        found.append((np.log(detector.mean(axis=1)), np.log(total)))
    return np.transpose(found, (1, 2, 0))


def test_every_bet_has_mean_1_and_never_grows_with_p():
    inside, outside = np.exp(log_bets(0.0)), np.exp(log_bets(1.0))
    np.testing.assert_allclose(LEVELS * inside + (1 - LEVELS) * outside, 1, rtol=1e-12)
    np.testing.assert_allclose(inside, 1 - SHARES + SHARES / LEVELS)
    assert (np.diff(log_bets(np.linspace(0, 1, 2001)), axis=0) <= 0).all()


def test_evidence_is_the_sum_the_maximum_and_the_weighted_sum_of_all_products():
    p_values = np.random.default_rng(0).random(12) ** 3
    evidence = Evidence()
    for index, p_value in enumerate(p_values.tolist()):
        evidence.bet(p_value, 100 + index)
        bets = np.where(
            p_values[: index + 1, None] <= LEVELS, 1 - SHARES + SHARES / LEVELS, 1 - SHARES
        )
        products = np.array([bets[start:].prod(axis=0) for start in range(index + 1)])
        weights = np.diff([-1 / np.log2(start + 2) for start in range(index + 2)])
        unused = 1 - weights.sum()
        assert evidence.log_detector == pytest.approx(np.log(products.sum(axis=0).mean()))
        assert evidence.log_cusum == pytest.approx(np.log(products.max(axis=0).mean()))
        expected = np.log((weights @ products).mean() + unused)
        assert evidence.log_martingale == pytest.approx(expected)
        best = products.max(axis=0).argmax()
        assert evidence.onset == 100 + products[:, best].argmax()


def test_under_uniform_p_values_the_martingale_has_mean_1_and_the_detector_mean_t():
    # Bets change at the levels only: an exact sum over all three-step streams.
    edges = np.concatenate([[0], np.unique(LEVELS), [1]])
    inner, weights = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    streams = np.array(list(itertools.product(inner, repeat=3)))
    chances = np.array([np.prod(one) for one in itertools.product(weights, repeat=3)])
    detector, martingale = np.exp(simulated(streams))
    np.testing.assert_allclose(chances @ martingale, [1, 1, 1], rtol=1e-12)
    np.testing.assert_allclose(chances @ detector, [1, 2, 3], rtol=1e-12)


def test_ville_and_run_length_bounds_hold_in_simulation():
    streams = 2000
    detector, martingale = simulated(np.random.default_rng(1).random((streams, 400)))
    for limit in (5, 20, 100):
        reached = int((martingale.max(axis=1) >= np.log(limit)).sum())
        assert binomtest(reached, streams, 1 / limit, "greater").pvalue > 1e-3
    for limit in (800, 4000):
        reached = int((detector.max(axis=1) >= np.log(limit)).sum())
        assert binomtest(reached, streams, 400 / limit, "greater").pvalue > 1e-3
    # It is no empty promise: some streams do reach it.
    assert (martingale.max(axis=1) >= np.log(5)).mean() > 0.03


def test_the_mean_run_length_is_at_least_the_threshold():
    limit, streams = 50, 400
    detector, _ = simulated(np.random.default_rng(2).random((streams, 1000)))
    hits = detector >= np.log(limit)
    lengths = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, 1000)  # cut off: an underestimate
    assert lengths.mean() > limit
    assert hits.any(axis=1).mean() > 0.9


def test_larger_p_values_never_win_more():
    p_values = np.random.default_rng(3).random((20, 30))
    lower, higher = simulated(p_values), simulated(np.minimum(1, p_values * 1.5))
    assert (higher <= lower + 1e-12).all()


def test_long_evidence_does_not_overflow():
    evidence = Evidence()
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for index in range(2000):
            evidence.bet(1e-6, index)
    assert 700 < evidence.log_cusum <= evidence.log_detector < np.inf
    assert np.isfinite(evidence.log_martingale)
    assert evidence.onset == 0


def test_the_smaller_of_two_values_is_kept():
    first, second = Evidence(), Evidence()
    for index, p_value in enumerate(np.random.default_rng(4).random(40).tolist()):
        first.bet(p_value, index)
        second.bet(p_value**2, index)
    expected = np.minimum(first.detector, second.detector)
    first.lower(second)
    np.testing.assert_array_equal(first.detector, expected)
    assert first.log_martingale <= second.log_martingale
