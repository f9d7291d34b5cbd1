"""Exact conformal ranks among all scores seen so far, in bounded memory."""

import bisect
from collections.abc import Mapping

import numpy as np

__all__ = ["RankPool"]


class RankPool:
    """A bag of scores that ranks a new one: `p = (#greater + θ (#equal + 1)) / (n + 1)`, θ uniform in [0, 1).

    If the scores of the bag and the new ones are exchangeable, the p-values of successive new scores are independent
    and uniform, whatever the distribution of the scores (Vovk, On-line confidence machines are well-calibrated, 2002):
    given the bag of the first t scores, each of them is as likely to be the last, and so on backwards.

    Up to `capacity` scores are kept one by one. At that count the pool keeps `capacity // 16` of them as edges, at
    ranks that are fixed beforehand: the highest scores, `capacity // 32` of them, one by one, and as many evenly spaced
    ranks below. From then on it only counts the scores at each edge and between two edges; those that share a place are
    tied. Given the edges, scores between two of them are still exchangeable, so that a random order among them has the
    same distribution as the true one: p-values stay *exactly* independent and uniform, for endless streams. Only the
    place of a single score is approximate: its p-value lies within `(m + 1) / (n + 1)` of that among all scores, where
    m of the n scores share its place. With the default capacity of 65,536 that is about 0.0005, and 1/65,536 below p =
    0.03.

    Args:
        scores: `[n]`, finite.
        capacity: scores kept one by one; at least 32.

    Example:
        >>> pool = RankPool(np.array([1.0, 2.0, 2.0, 3.0]))
        >>> pool.p_value(2.0, 0.5), pool.p_value(9.0, 0.5)  # (1 + 0.5 · 3) / 5 and 0.5 / 5
        (0.5, 0.1)
    """

    def __init__(self, scores: np.ndarray, *, capacity: int = 65_536):
        self.capacity = capacity
        self.count = len(scores)
        self.values: list[float] = np.sort(scores).tolist()
        self.edges = np.empty(0)
        self.counts = np.empty(0, np.int64)
        if self.count >= capacity:
            self._freeze()

    @property
    def frozen(self) -> bool:
        """Whether scores are only counted, between edges."""
        return len(self.edges) > 0

    def p_value(self, score: float, theta: float) -> float:
        """The p-value of a new score, which is not added yet."""
        if self.frozen:
            place = self._place(score)
            greater, equal = int(self.counts[place + 1 :].sum()), int(self.counts[place])
        else:
            right = bisect.bisect_right(self.values, score)
            greater = self.count - right
            equal = right - bisect.bisect_left(self.values, score, hi=right)
        return (greater + theta * (equal + 1)) / (self.count + 1)

    def add(self, score: float) -> None:
        """Adds a score."""
        self.count += 1
        if self.frozen:
            self.counts[self._place(score)] += 1
            return
        bisect.insort_right(self.values, score)
        if self.count >= self.capacity:
            self._freeze()

    def remove(self, score: float) -> None:
        """Removes a score that was added."""
        self.count -= 1
        if self.frozen:
            self.counts[self._place(score)] -= 1
        else:
            del self.values[bisect.bisect_left(self.values, score)]

    def get_state(self) -> dict[str, np.ndarray]:
        """The content of the pool, as arrays."""
        return {"values": np.array(self.values), "edges": self.edges, "counts": self.counts}

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray], *, capacity: int) -> "RankPool":
        """A pool that continues from a state."""
        pool = cls(np.empty(0), capacity=capacity)
        pool.values = state["values"].tolist()
        pool.edges, pool.counts = state["edges"], state["counts"].copy()
        pool.count = len(pool.values) + int(pool.counts.sum())
        return pool

    def _place(self, score: float) -> int:
        """Places alternate: below the first edge, at it, between it and the second, …"""
        left = self.edges.searchsorted(score, "left")
        return int(left + self.edges.searchsorted(score, "right"))

    def _freeze(self) -> None:
        values = np.array(self.values)
        top = max(1, self.capacity // 32)
        # Ranks, never values, decide what is kept: only then is the rest exchangeable with later scores.
        below = np.linspace(0, self.count - top - 1, top).round().astype(int)
        self.edges = np.unique(
            values[np.concatenate([below, np.arange(self.count - top, self.count)])]
        )
        places = self.edges.searchsorted(values, "left") + self.edges.searchsorted(values, "right")
        self.counts = np.bincount(places, minlength=2 * len(self.edges) + 1).astype(np.int64)
        self.values = []
