"""The latest images of a stream, in bounded memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["History"]


class History:
    """A ring of the latest `size` images: columns of numbers, and their groups and keys.

    Args:
        size: images to keep.

    Attributes:
        count: images added so far.

    Example:
        >>> history = History(3)
        >>> for index in range(5):
        ...     history.add(float(index), 0.5, 0.5, True, "", f"{index}.png")
        >>> history.since(3)["score"], history.key(4), history.first
        (array([3., 4.]), '4.png', 2)
    """

    COLUMNS = ("score", "p_value", "stream_p_value", "bet", "forgotten")

    def __init__(self, size: int):
        self.size, self.count = size, 0
        self._numbers = np.zeros((size, len(self.COLUMNS)))
        self._groups: list[int | str] = [""] * size
        self._keys: list[Any] = [None] * size

    @property
    def first(self) -> int:
        """Index of the oldest image that is kept."""
        return max(0, self.count - self.size)

    def add(
        self,
        score: float,
        p_value: float,
        stream_p_value: float,
        bet: bool,
        group: int | str,
        key: Any,
    ) -> None:
        """Adds an image; a full history drops its oldest one."""
        row = self.count % self.size
        self._numbers[row] = (score, p_value, stream_p_value, bet, False)
        self._groups[row], self._keys[row] = group, key
        self.count += 1

    def since(self, index: int) -> dict[str, np.ndarray]:
        """By column, the images from an index on, as far as they are kept; in the order of the stream."""
        found = self._numbers[self._rows(index)]
        return {name: found[:, number] for number, name in enumerate(self.COLUMNS)}

    def group(self, index: int) -> int | str:
        """The group of an image that is kept."""
        return self._groups[index % self.size]

    def key(self, index: int) -> Any:
        """The caller's key of an image that is kept."""
        return self._keys[index % self.size]

    def set_bets(self, index: int, used: np.ndarray) -> None:
        """Updates which images from an index on were bet on."""
        self._numbers[self._rows(index), self.COLUMNS.index("bet")] = used

    def forget(self, index: int) -> None:
        """Marks images from an index on as removed from the pool."""
        self._numbers[self._rows(index), self.COLUMNS.index("forgotten")] = True

    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The content as JSON-safe values and arrays."""
        rows = self._rows(0)
        names = {"groups": self._groups, "keys": self._keys}
        content = {name: [of[row] for row in rows] for name, of in names.items()}
        return {"size": int(self.size), "count": self.count, **content}, {
            "rows": self._numbers[rows]
        }

    @classmethod
    def from_state(cls, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "History":
        """A history that continues from a state."""
        history = cls(content["size"])
        history.count = content["count"]
        rows = history._rows(0)
        history._numbers[rows] = arrays["rows"]
        for place, row in enumerate(rows):
            history._groups[row] = content["groups"][place]
            history._keys[row] = content["keys"][place]
        return history

    def _rows(self, index: int) -> np.ndarray:
        return np.arange(max(index, self.first), self.count) % self.size
