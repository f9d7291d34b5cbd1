"""One image of a stream, and the protocol of sources."""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

__all__ = ["Item", "Source", "identify"]


@dataclasses.dataclass(frozen=True, eq=False)
class Item:
    """One image as a source yields it: scored, or unreadable with the reason.

    Attributes:
        key: its name for display, such as a path.
        score: NaN if it is unreadable.
        unreadable: why it has no score; empty if it has one.
        id: 16 hex digits; of two items with the same id only the first counts. Empty for items that are always new.
        group: its cluster, for a detector calibrated within clusters; None otherwise.
        request: 16 hex digits of the request it came with; empty without one.
        picture: returns the pixels, uint8 `[height, width, channels]`, for the page; None if there are none.

    Example:
        >>> Item("door.png", 3.5, id=identify("door.png", 812, 7)).is_scored
        True
    """

    key: str
    score: float = math.nan
    unreadable: str = ""
    id: str = ""
    group: int | None = None
    request: str = ""
    picture: Callable[[], np.ndarray | None] | None = None

    @property
    def is_scored(self) -> bool:
        return not self.unreadable


class Source(Protocol):
    """Yields items, one batch at a time: the next `poll` comes after `done`."""

    @property
    def finished(self) -> bool:
        """Whether no more items will come."""
        ...

    def poll(self, seconds: float) -> list[Item]:
        """The next items; none if none came within the time limit, which one batch may exceed."""
        ...

    def done(self, counted: bool) -> None:
        """Called when the items of the last `poll` are in the journal, or could not be written."""
        ...

    def stop(self) -> None:
        """Requests the end; items that clients wait for still come."""
        ...


def identify(*parts: object) -> str:
    """A short digest of what identifies an item, 64 bits.

    Example:
        >>> identify("a.png", 812, 1700000000) == identify("a.png", 812, 1700000001)
        False
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.hexdigest()
