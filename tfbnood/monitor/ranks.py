"""P-values of successive scores: among held-out scores alone, and among all scores so far; by group."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbnood.monitor.pool import RankPool

__all__ = ["PValues", "Ranks", "theta"]

_BLOCK = 4096

Group = int | str


@dataclasses.dataclass(frozen=True)
class PValues:
    """Three p-values of one score.

    Attributes:
        held_out: `(1 + #{held-out ≥ score}) / (n + 1)`, as `Detector.p_values`.
        smoothed: the same with ties broken at random: `(#greater + θ (#equal + 1)) / (n + 1)`.
        stream: smoothed, among held-out and all earlier scores.
    """

    held_out: float
    smoothed: float
    stream: float


class Ranks:
    """Held-out scores and the growing pool of all scores, by group (Mondrian conformal prediction).

    A score is compared with those of its own group. The p-values are then independent and uniform if the scores of each
    group are exchangeable, whatever the order and the mix of groups. A group without held-out scores starts empty: its
    first p-value is θ.

    Args:
        scores: `[n]`, held out.
        groups: `[n]`.
        capacity: of every `RankPool`.

    Example:
        >>> ranks = Ranks(np.array([1.0, 2.0, 3.0, 9.0]), ["a", "a", "a", "b"])
        >>> ranks.take(2.5, "a", 0.5)  # 1 of 3 is greater
        PValues(held_out=0.5, smoothed=0.375, stream=0.375)
        >>> ranks.take(2.5, "a", 0.5).stream  # 1 of 4 is greater, 1 is equal
        0.4
    """

    def __init__(self, scores: np.ndarray, groups: Sequence[Group], *, capacity: int = 65_536):
        self.capacity = capacity
        rows: dict[Group, list[int]] = {}
        for row, group in enumerate(groups):
            rows.setdefault(group, []).append(row)
        self.held_out = {group: np.sort(scores[of]) for group, of in rows.items()}
        self.pools = {group: RankPool(of, capacity=capacity) for group, of in self.held_out.items()}

    @property
    def scores(self) -> np.ndarray:
        """All held-out scores, sorted."""
        return np.sort(np.concatenate(list(self.held_out.values())))

    def take(self, score: float, group: Group, theta: float) -> PValues:
        """Ranks a score and adds it to the pool of its group."""
        null = self.held_out.get(group, _NONE)
        left, right = int(null.searchsorted(score, "left")), int(null.searchsorted(score, "right"))
        pool = self.pools.get(group)
        if pool is None:
            pool = self.pools[group] = RankPool(_NONE, capacity=self.capacity)
        stream = pool.p_value(score, theta)
        pool.add(score)
        size = len(null)
        held_out = (1 + size - left) / (size + 1)
        smoothed = (size - right + theta * (right - left + 1)) / (size + 1)
        return PValues(held_out, smoothed, stream)

    def remove(self, score: float, group: Group) -> None:
        """Removes a score of the stream from its pool."""
        self.pools[group].remove(score)

    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON-safe values and arrays."""
        arrays = {f"held_out/{i}": of for i, of in enumerate(self.held_out.values())}
        for number, pool in enumerate(self.pools.values()):
            arrays |= {f"pool/{number}/{name}": of for name, of in pool.get_state().items()}
        groups = {"groups": list(self.pools), "held_out_groups": len(self.held_out)}
        return {**groups, "capacity": int(self.capacity)}, arrays

    @classmethod
    def from_state(cls, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Ranks":
        """Ranks that continue from a state."""
        ranks = cls(_NONE, (), capacity=content["capacity"])
        for number, group in enumerate(content["groups"]):
            if number < content["held_out_groups"]:
                ranks.held_out[group] = arrays[f"held_out/{number}"]
            found = {
                name: arrays[f"pool/{number}/{name}"] for name in ("values", "edges", "counts")
            }
            ranks.pools[group] = RankPool.from_state(found, capacity=ranks.capacity)
        return ranks


_NONE = np.empty(0)


def theta(seed: int, index: int) -> float:
    """A uniform random number in [0, 1) that depends only on the seed and the index.

    Example:
        >>> theta(0, 5) == float(np.random.default_rng([0, 0]).random(4096)[5])
        True
    """
    return _thetas(seed, index // _BLOCK)[index % _BLOCK]


@functools.lru_cache(maxsize=4)
def _thetas(seed: int, block: int) -> list[float]:
    return np.random.default_rng([seed, block]).random(_BLOCK).tolist()
