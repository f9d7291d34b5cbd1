"""LORD++, SAFFRON and ADDIS against the papers' formulas and the reference implementations in R and Python."""

import numpy as np
import pytest

from tfbnood.errors import DataError
from tfbnood.monitor import OnlineFdr, online_fdr
from tfbnood.monitor.online_fdr import METHODS

# The example in the documentation of the R package onlineFDR: p-values and levels at α = 0.05, w0 = 0.025.
P_VALUES = [
    2.90e-08, 0.06743, 0.01514, 0.08174, 0.00171, 3.60e-05, 0.79149, 0.27201, 0.28295, 7.59e-08, 0.69274, 0.30443,
    0.00136, 0.72342, 0.54757,
]  # fmt: skip
LEVELS = {
    "saffron": [
        0.005468627, 0.010937254, 0.010937254, 0.010937254, 0.010937254, 0.021874508, 0.032811762, 0.010823845,
        0.010823845, 0.010823845, 0.021761099, 0.009265591, 0.009265591, 0.020202846, 0.009064367,
    ],
    "addis": [
        0.002734314, 0.005468627, 0.005468627, 0.005468627, 0.005468627, 0.010937254, 0.016405881, 0.016405881,
        0.005411923, 0.002828822, 0.008297449, 0.008297449, 0.003589243, 0.009057870, 0.009057870,
    ],
}  # fmt: skip


@pytest.mark.parametrize("method", LEVELS)
def test_levels_are_those_of_the_reference_implementation(method):
    online, found = OnlineFdr(0.05, method=method), []
    for p_value in P_VALUES:
        found.append(online.level)
        online.test(p_value)
    np.testing.assert_allclose(found, LEVELS[method], atol=1e-9)


# online-fdr 1.0.0 of PyPI on `four_hundred()` at α = 0.1, w0 = 0.05 and the constants of `METHODS`: how many
# discoveries, those among the first 120, and the last level.
RECORDED = {
    "lord++": (
        83,
        [2, 3, 11, 13, 15, 20, 21, 32, 48, 53, 55, 59, 61, 62, 66, 69, 88, 92, 96, 108, 111, 113, 117, 119],
        0.005577885097425894,
    ),
    "saffron": (
        90,
        [2, 3, 11, 13, 15, 20, 21, 32, 48, 50, 53, 55, 59, 61, 62, 66, 69, 88, 92, 96, 108, 111, 113, 117, 119],
        0.03671200612514649,
    ),
    "addis": (
        89,
        [2, 3, 11, 13, 15, 20, 21, 32, 36, 48, 50, 53, 55, 59, 61, 62, 66, 69, 73, 88, 92, 96, 108, 111, 113, 117, 119],
        0.020949193838818297,
    ),
}  # fmt: skip


def four_hundred():
    rng = np.random.default_rng(0)
    strange = rng.random(400) < 0.2
    return np.where(strange, rng.random(400) * 1e-3, rng.random(400)).round(6)


@pytest.mark.parametrize("method", RECORDED)
def test_decisions_are_those_of_the_package_online_fdr(method):
    count, first, last = RECORDED[method]
    online, found = OnlineFdr(0.1, method=method), []
    for p_value in four_hundred():
        level = online.level
        found.append(online.test(p_value))
    assert np.flatnonzero(found[:120]).tolist() == first
    assert sum(found) == online.discoveries == count
    assert level == pytest.approx(last, abs=1e-10)


def test_lord_is_the_paper_s_formula():
    def gamma(rank):
        return 0.07720838 * np.log(max(rank, 2)) / (rank * np.exp(np.sqrt(np.log(rank))))

    rng = np.random.default_rng(0)
    p_values = rng.random(200) ** rng.integers(1, 12, 200)
    online, times = OnlineFdr(0.1, method="lord++", wealth=0.02), []
    for time, p_value in enumerate(p_values, 1):
        level = 0.02 * gamma(time)
        level += sum((0.08 if first else 0.1) * gamma(time - of) for first, of in _marked(times))
        assert online.level == pytest.approx(level, rel=1e-12)
        assert online.test(p_value) == (p_value <= level)
        if p_value <= level:
            times.append(time)
    assert len(times) > 20


def _marked(times):
    return [(place == 0, time) for place, time in enumerate(times)]


@pytest.mark.parametrize("method", METHODS)
def test_spending_never_rises_and_sums_to_at_most_1(method):
    gamma = METHODS[method].gamma(np.arange(1, 1_000_001))
    # The second value of Javanmard and Montanari's sequence is not below its first.
    assert (np.diff(gamma[1:]) <= 0).all()
    assert gamma.sum() <= 1


@pytest.mark.parametrize("method", METHODS)
def test_the_false_discovery_rate_is_held_on_conformal_p_values(method):
    shares, found = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        held_out, scores = np.sort(rng.normal(size=2000)), rng.normal(size=600)
        strange = rng.random(600) < 0.2
        scores[strange] += 5
        greater = 2000 - np.searchsorted(held_out, scores)
        online = OnlineFdr(0.1, method=method)
        alarms = np.array([online.test(p) for p in (greater + rng.random(600)) / 2001])
        shares.append((alarms & ~strange).sum() / max(1, alarms.sum()))
        found.append((alarms & strange).sum() / strange.sum())
    assert np.mean(shares) < 0.1 + 3 * np.std(shares) / np.sqrt(40)
    assert np.mean(found) > 0.5


def test_the_state_of_endless_streams_is_bounded_and_errs_on_the_side_of_no_alarm(monkeypatch):
    exact = OnlineFdr(0.1)
    monkeypatch.setattr(online_fdr, "_MOST_DISCOVERIES", 50)
    bounded = OnlineFdr(0.1)
    rng = np.random.default_rng(1)
    for p_value in rng.random(1000) * rng.choice([1e-6, 1], 1000):
        monkeypatch.setattr(online_fdr, "_MOST_DISCOVERIES", 10**6)
        exact.test(p_value)
        monkeypatch.setattr(online_fdr, "_MOST_DISCOVERIES", 50)
        bounded.test(p_value)
        assert bounded.level <= exact.level * (1 + 1e-12)
    assert len(bounded.get_state()["later"]) == 50
    assert bounded.discoveries > 400


@pytest.mark.parametrize("method", METHODS)
def test_a_state_goes_on_bit_for_bit(method):
    rng = np.random.default_rng(2)
    p_values = rng.random(300) ** 4
    whole, first = OnlineFdr(0.2, method=method), OnlineFdr(0.2, method=method)
    decisions = [whole.test(p) for p in p_values]
    start = [first.test(p) for p in p_values[:100]]
    again = OnlineFdr.from_state(first.get_state())
    assert start + [again.test(p) for p in p_values[100:]] == decisions
    assert again.get_state() == whole.get_state()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fdr": 0}, r"fdr must lie in \(0, 1\)"),
        ({"fdr": "x"}, r"fdr must lie in \(0, 1\)"),
        ({"fdr": 0.1, "method": "bh"}, "method must be one of lord"),
        ({"fdr": 0.1, "wealth": 0.1}, r"wealth must lie in \(0, fdr\)"),
    ],
)
def test_settings_outside_of_their_range_are_refused(arguments, message):
    with pytest.raises(DataError, match=f"{message}.*Received"):
        OnlineFdr(**arguments)


@pytest.mark.parametrize("p_value", [-0.1, 1.1, float("nan")])
def test_p_values_outside_of_0_1_are_refused(p_value):
    online = OnlineFdr(0.1)
    with pytest.raises(DataError, match=r"p_value must lie in \[0, 1\]"):
        online.test(p_value)
    assert online.tests == 0
