"""Samples each group in bounded memory, with the same result at every attempt."""

import hashlib
import heapq
from collections.abc import Iterable
from typing import Any, TypeAlias

import apache_beam as beam

__all__ = ["SmallestDigests"]

# The number of pairs, and the chosen ones with digest and name.
_Accumulator: TypeAlias = tuple[int, list[tuple[bytes, str, Any]]]


class SmallestDigests(beam.CombineFn):
    """(name, value) pairs → their number, and the values of the n names with the smallest SHA-256.

    A random choice without random numbers: a retried bundle or another order changes nothing.

    Args:
        count: n.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def create_accumulator(self) -> _Accumulator:
        """An empty sample."""
        return 0, []

    def add_input(self, accumulator: _Accumulator, pair: tuple[str, Any]) -> _Accumulator:
        """A sample with one more pair to choose from."""
        seen, chosen = accumulator
        name, value = pair
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
        if len(chosen) < self._count or (digest, name) < chosen[-1][:2]:
            chosen = self._smallest([*chosen, (digest, name, value)])
        return seen + 1, chosen

    def merge_accumulators(self, several: Iterable[_Accumulator]) -> _Accumulator:
        """A sample of several together."""
        seen, chosen = 0, []
        for count, some in several:
            seen += count
            chosen += some
        return seen, self._smallest(chosen)

    def extract_output(self, accumulator: _Accumulator) -> tuple[int, list[Any]]:
        """The number of pairs, and the chosen values."""
        return accumulator[0], [value for *_, value in accumulator[1]]

    def _smallest(self, chosen: list[tuple[bytes, str, Any]]) -> list[tuple[bytes, str, Any]]:
        return heapq.nsmallest(self._count, chosen, key=lambda one: one[:2])
