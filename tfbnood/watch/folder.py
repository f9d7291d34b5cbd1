"""New image files below a folder, each read once it is complete."""

import collections
import concurrent.futures
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tfbnood.data.files import UnreadableImageError, read_image
from tfbnood.data.folders import walk
from tfbnood.watch.items import Item, identify
from tfbnood.watch.tally import Tally

__all__ = ["CHUNK", "FolderSource", "read_files"]

CHUNK = 64
_SETTLED = 2.0  # seconds without a change after which a file is read
_PATIENCE = 10.0  # seconds without a change after which an undecodable file is given up
_SHORTEST = 0.1

Score = Callable[[np.ndarray], "np.ndarray | tuple[np.ndarray, np.ndarray]"]
"""From images to scores `[n]`, or to scores and clusters."""


class Found(NamedTuple):
    """A file as it was when it was listed."""

    mtime_ns: int
    key: str
    path: pathlib.Path
    size: int

    @property
    def id(self) -> str:
        """Changes when the file does."""
        return identify(self.key, self.size, self.mtime_ns)


class FolderSource:
    """Looks into a folder repeatedly; files come in the order of their times, then of their names.

    A file is read once it has not changed for two seconds, or between two looks if they are further apart. If it cannot
    be decoded, it is retried until it has not changed for ten seconds, then counted as unreadable. A file that changes
    later is a new image. Hidden files are ignored: programs write under such names before they rename.

    Args:
        folder: may disappear for a while, as a network share does.
        image_shape: `(height, width, channels)` that files are fitted to.
        score: from images `[n, height, width, channels]` to `[n]`.
        tally: knows which files were seen.
        interval: seconds between looks; longer if a look itself takes long.
        once: end when all existing files have been read.

    Attributes:
        missing: why the folder cannot be listed; empty while it can.

    Example:
        >>> import os
        >>> from PIL import Image
        >>> from tfbnood.watch.tally import Tally
        >>> for index in range(2):
        ...     Image.fromarray(x.test[index, ..., 0]).save(folder / f"{index}.png")
        ...     os.utime(folder / f"{index}.png", (1000 - index, 1000 - index))
        >>> source = FolderSource(folder, (8, 8, 1), detector.score, Tally(), once=True)
        >>> [item.key for item in source.poll(1.0)]
        ['1.png', '0.png']
    """

    def __init__(
        self,
        folder: pathlib.Path,
        image_shape: tuple[int, int, int],
        score: Score,
        tally: Tally,
        *,
        interval: float = 1.0,
        once: bool = False,
    ):
        self._folder, self._image_shape, self._score = folder, image_shape, score
        self._tally, self._interval, self._once = tally, interval, once
        self._ready: collections.deque[Found] = collections.deque()
        self._since: dict[str, float] = {}  # by id of an incomplete file: when it was first seen
        self._next_look = 0.0
        self.finished = False
        self.missing = ""

    def poll(self, seconds: float) -> list[Item]:
        """Items of the next files, at most 64."""
        end = time.monotonic() + seconds
        while not self.finished:
            if not self._ready and time.monotonic() >= self._next_look:
                self._look()
            if self._ready:
                some = [self._ready.popleft() for _ in range(min(CHUNK, len(self._ready)))]
                if items := self._read(some):
                    return items
                continue
            if self._once and not self._since:
                self.finished = True
                break
            left = min(end, self._next_look) - time.monotonic()
            if time.monotonic() >= end:
                break
            time.sleep(max(0.0, left))
        return []

    def done(self, counted: bool) -> None:
        """Nobody waits."""

    def stop(self) -> None:
        self.finished = True

    def _look(self) -> None:
        """Lists the folder and collects new, complete files."""
        began = time.monotonic()
        closed: list[tuple[pathlib.Path, str]] = []
        ids: set[str] = set()
        new: list[Found] = []
        for found in self._files(closed):
            ids.add(found.id)
            if not self._tally.has(found.id):
                new.append(found)
        self.missing = closed[0][1] if closed and closed[0][0] == self._folder else ""
        if not closed:
            self._tally.forget_all_but(ids)
        self._since = {one.id: self._since.get(one.id, began) for one in new}
        self._ready.extend(sorted(one for one in new if self._unchanged(one) >= self._settled))
        took = time.monotonic() - began
        self._next_look = began + took + max(self._interval, took, _SHORTEST)

    @property
    def _settled(self) -> float:
        return min(_SETTLED, max(self._interval, _SHORTEST))

    def _unchanged(self, found: Found) -> float:
        """The seconds since a file last changed, by its own time or by ours."""
        return max(
            time.time() - found.mtime_ns / 1e9, time.monotonic() - self._since.get(found.id, np.inf)
        )

    def _files(self, closed: list[tuple[pathlib.Path, str]]) -> Iterator[Found]:
        for path in walk(self._folder, closed=closed):
            parts = path.relative_to(self._folder).parts
            if any(part.startswith(".") for part in parts):
                continue
            try:
                about = path.stat()
            except OSError:
                continue  # has disappeared
            yield Found(about.st_mtime_ns, os.sep.join(parts), path, about.st_size)

    def _read(self, some: list[Found]) -> list[Item]:
        by_id = {one.id: one for one in some}
        items = []
        for item in read_files(some, self._image_shape, self._score):
            if item.unreadable and self._unchanged(by_id[item.id]) < _PATIENCE:
                continue  # retried later
            self._since.pop(item.id, None)
            items.append(item)
        return items


def read_files(some: list[Found], image_shape: tuple[int, int, int], score: Score) -> list[Item]:
    """Items of files that have not changed since they were listed."""
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        read = list(pool.map(lambda one: _read_whole(one, image_shape), some))
    images = [one for one in read if isinstance(one, np.ndarray)]
    found = score(np.stack(images)) if images else np.empty(0)
    scores, groups = found if isinstance(found, tuple) else (found, [None] * len(found))
    scored = iter([(float(one), _number(group)) for one, group in zip(scores, groups, strict=True)])
    items = []
    for file, image in zip(some, read, strict=True):
        if isinstance(image, str):
            items.append(Item(file.key, unreadable=image, id=file.id))
        elif image is not None:
            value, group = next(scored)
            if not np.isfinite(value):
                items.append(Item(file.key, unreadable="its score is not finite", id=file.id))
                continue
            picture = functools.partial(_same, image)
            items.append(Item(file.key, value, id=file.id, group=group, picture=picture))
    return items


def _number(group: Any) -> int | None:
    return None if group is None else int(group)


def _same(image: np.ndarray) -> np.ndarray:
    return image


def _read_whole(found: Found, image_shape: tuple[int, int, int]) -> np.ndarray | str | None:
    """The image, the reason why there is none, or None for a file that has changed since it was listed."""
    image: np.ndarray | str
    try:
        image = read_image(found.path, image_shape)[0]
    except UnreadableImageError as error:
        image = error.reason
    try:
        about = found.path.stat()
    except OSError:
        return None
    changed = (about.st_mtime_ns, about.st_size) != (found.mtime_ns, found.size)
    return None if changed else image
