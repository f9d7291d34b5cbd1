"""P-values among all scores so far are exactly uniform and independent, in bounded memory."""

import numpy as np
import pytest
from scipy.stats import kstest

from tfbnood.monitor.pool import RankPool
from tfbnood.monitor.ranks import Ranks, theta

DRAWS = {
    "normal": lambda rng, size: rng.normal(size=size),
    "few values": lambda rng, size: rng.integers(0, 4, size=size).astype(float),
    "one value": lambda rng, size: np.zeros(size),
}


def stream_p_values(rng, draw, held_out, length, capacity=65_536):
    pool = RankPool(draw(rng, held_out), capacity=capacity)
    found = []
    for score in draw(rng, length):
        found.append(pool.p_value(float(score), rng.random()))
        pool.add(float(score))
    return found


def test_a_p_value_counts_the_greater_and_a_random_part_of_the_equal_scores():
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 9, 40).astype(float)
    pool = RankPool(seen[:20])
    for score in seen[20:]:
        pool.add(float(score))
    for score in (-1.0, 0.0, 4.0, 4.5, 8.0, 99.0):
        expected = ((seen > score).sum() + 0.3 * ((seen == score).sum() + 1)) / 41
        assert pool.p_value(score, 0.3) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("capacity", [65_536, 40], ids=["one by one", "counted"])
def test_successive_p_values_are_uniform_and_uncorrelated_for_any_scores(draw, capacity):
    # 36 held-out scores and 12 of the stream: the small pool starts to count after the fourth.
    rng = np.random.default_rng([1, capacity])
    p = np.array([stream_p_values(rng, draw, 36, 12, capacity) for _ in range(1500)])
    for column in (0, 3, 5, 11):
        assert kstest(p[:, column], "uniform").pvalue > 1e-3
    correlations = np.corrcoef(p.T)[np.triu_indices(12, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(1500)
    # Sums feel a common error of all columns, which pairs may hide: their variance is 12/12.
    assert np.var(p.sum(axis=1)) == pytest.approx(1, abs=0.15)


def test_p_values_among_held_out_scores_alone_are_not_independent():
    # The trap: each is uniform, yet bets on all of them are not fair.
    rng = np.random.default_rng(2)
    found = []
    for _ in range(500):
        ranks = Ranks(rng.normal(size=36), [""] * 36)
        found.append(
            [ranks.take(score, "", rng.random()).smoothed for score in rng.normal(size=12)]
        )
    assert kstest(np.array(found)[:, 0], "uniform").pvalue > 1e-3
    assert np.var(np.sum(found, axis=1)) > 1.15


def test_a_pool_that_counts_is_off_by_no_more_than_the_scores_that_share_a_place():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=6000)
    pool, exact = RankPool(scores[:1000], capacity=1024), RankPool(scores[:1000])
    off = []
    for score in scores[1000:].tolist():
        shared = pool.counts[pool._place(score)] if pool.frozen else 0
        difference = abs(pool.p_value(score, 0.5) - exact.p_value(score, 0.5))
        assert difference <= (shared + 1) / (pool.count + 1)
        off.append(difference)
        pool.add(score)
        exact.add(score)
    assert off[:24] == [0] * 24
    # 64 edges of 1,024: the upper 32 one by one, the others about 31 apart.
    assert max(off) < 0.06
    high = [one for one, score in zip(off, scores[1000:], strict=True) if score > 2.5]
    assert max(high) < 0.004


def test_the_memory_of_a_pool_does_not_grow():
    rng = np.random.default_rng(4)
    pool = RankPool(rng.normal(size=100), capacity=512)
    sizes = set()
    for number, score in enumerate(rng.normal(size=5000).tolist()):
        pool.add(score)
        assert len(pool.values) < 512
        if number > 500:
            sizes.add(sum(array.nbytes for array in pool.get_state().values()))
    assert pool.count == 5100 == pool.counts.sum()
    assert len(sizes) == 1
    assert sizes.pop() < 512 * 8


@pytest.mark.parametrize("capacity", [65_536, 64])
def test_a_removed_score_leaves_no_trace(capacity):
    rng = np.random.default_rng(5)
    pool = RankPool(rng.normal(size=80), capacity=capacity)
    before = {name: array.copy() for name, array in pool.get_state().items()}
    for score in (0.5, -3.0, 0.5):
        pool.add(score)
    for score in (0.5, 0.5, -3.0):
        pool.remove(score)
    for name, array in pool.get_state().items():
        np.testing.assert_array_equal(array, before[name])
    assert pool.count == 80


def test_groups_are_ranked_among_themselves_and_a_new_group_starts_empty():
    rng = np.random.default_rng(6)
    held_out, groups = rng.normal(size=60), rng.integers(0, 3, 60).tolist()
    ranks = Ranks(held_out, groups)
    seen = {
        group: [s for s, g in zip(held_out, groups, strict=True) if g == group]
        for group in (0, 1, 2, 7)
    }
    for group in (0, 1, 7, 2, 7, 7):
        score = float(rng.normal())
        found = ranks.take(score, group, 0.25)
        others = np.array(seen[group])
        assert found.stream == pytest.approx(((others > score).sum() + 0.25) / (len(others) + 1))
        null = held_out[np.array(groups) == group]
        assert found.held_out == pytest.approx((1 + (null >= score).sum()) / (len(null) + 1))
        seen[group].append(score)


def test_group_wise_p_values_are_uniform_in_whatever_order_groups_come():
    # Groups of very different scores, in blocks: without groups the first p-values would all be small.
    rng = np.random.default_rng(7)
    found = []
    for _ in range(300):
        ranks = Ranks(
            np.concatenate([rng.normal(size=15), rng.normal(9, size=15)]), [0] * 15 + [1] * 15
        )
        order = [1] * 6 + [0] * 6
        found.append([ranks.take(float(rng.normal(9 * g)), g, rng.random()).stream for g in order])
    assert kstest(np.ravel(found), "uniform").pvalue > 1e-3
    assert np.var(np.sum(found, axis=1)) == pytest.approx(1, abs=0.3)


def test_random_ties_depend_on_seed_and_index_alone():
    first = [theta(3, index) for index in range(10_000)]
    assert first == [theta(3, index) for index in reversed(range(10_000))][::-1]
    assert kstest(first, "uniform").pvalue > 1e-3
    assert len(set(first) & {theta(4, index) for index in range(10_000)}) == 0
