"""One image of a stream, and what gives them."""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

__all__ = ["Item", "Source", "identify"]


@dataclasses.dataclass(frozen=True, eq=False)
class Item:
    """One image as a source hands it on: scored, or unreadable with the reason.

    Attributes:
        key: what people call it by, such as a path.
        score: NaN for one that is unreadable.
        unreadable: why it has no score; empty for one that has.
        id: 16 hex digits; of two items with the same one only the first is taken. Empty for items that are always new.
        group: its cluster, for a detector calibrated within clusters; None otherwise.
        request: 16 hex digits of the request that it came by; empty where there was none.
        picture: gives the pixels, uint8 `[height, width, channels]`, for the page; None where there are none.

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
    """Gives items. One batch at a time: the next `poll` comes after `done`."""

    @property
    def finished(self) -> bool:
        """Whether no more items will come."""
        ...

    def poll(self, seconds: float) -> list[Item]:
        """The next items; none when none came within the time, which may be passed by that of one batch."""
        ...

    def done(self, counted: bool) -> None:
        """What the last `poll` gave is in the journal, or could not be written."""
        ...

    def stop(self) -> None:
        """Asks for an end; items that clients wait for still come."""
        ...


def identify(*parts: object) -> str:
    """A short digest of what makes an item the same one, 64 bits.

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
