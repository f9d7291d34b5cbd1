"""Lines of text: paths of image files, or scores."""

import dataclasses
import json
import math
import pathlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from tfbnood.watch.folder import CHUNK, Found, Score, read_files
from tfbnood.watch.items import Item, identify
from tfbnood.watch.tally import Tally

__all__ = ["LineSource", "parse_score", "path_reader", "score_reader"]

_AHEAD = 4096  # lines to read ahead


class LineSource:
    r"""Reads lines in a separate thread, until their end.

    Args:
        stream: of text.
        read: from lines to items.
        tally: knows which items were seen.

    Example:
        >>> import io
        >>> from tfbnood.watch.tally import Tally
        >>> lines = io.StringIO("1.5\n\n2.5\n")
        >>> source = LineSource(lines, lambda some: [parse_score(one) for one in some], Tally())
        >>> [item.score for item in source.poll(1.0)], source.poll(0.1), source.finished
        ([1.5, 2.5], [], True)
    """

    def __init__(self, stream: TextIO, read: Callable[[list[str]], list[Item]], tally: Tally):
        self._read, self._tally = read, tally
        self._lines: queue.Queue[str | None] = queue.Queue(_AHEAD)
        self.finished = self._ended = False
        threading.Thread(
            target=self._pump, args=(stream,), name="tfbnood-lines", daemon=True
        ).start()

    def poll(self, seconds: float) -> list[Item]:
        """Items of the available lines, at most 64."""
        end = time.monotonic() + seconds
        lines: list[str] = []
        while not self._ended and len(lines) < CHUNK:
            try:
                line = self._lines.get(timeout=0 if lines else max(0.001, end - time.monotonic()))
            except queue.Empty:
                break
            if line is None:
                self._ended = True
            elif line.strip():
                lines.append(line.rstrip("\r\n"))
        self.finished = self.finished or (self._ended and not lines)
        self._tally.forget_oldest()
        return self._read(lines) if lines else []

    def done(self, counted: bool) -> None:
        """Nobody waits."""

    def stop(self) -> None:
        self.finished = True

    def _pump(self, stream: TextIO) -> None:
        try:
            for line in stream:
                self._lines.put(line)
        except (OSError, ValueError):  # closed, or not text
            pass
        self._lines.put(None)


def path_reader(
    image_shape: tuple[int, int, int], score: Score
) -> Callable[[list[str]], list[Item]]:
    """A function from paths to items; an unchanged file keeps its id."""

    def read(lines: list[str]) -> list[Item]:
        found: list[Found | Item] = []
        for line in lines:
            path = pathlib.Path(line)
            try:
                about = path.stat()
                found.append(Found(about.st_mtime_ns, line, path, about.st_size))
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                found.append(Item(line, unreadable=reason.lower()))
        files = [one for one in found if isinstance(one, Found)]
        read = {one.key: one for one in read_files(files, image_shape, score)}
        items = [one if isinstance(one, Item) else read.get(one.key) for one in found]
        return [one for one in items if one is not None]

    return read


def score_reader(grouped: bool) -> Callable[[list[str]], list[Item]]:
    """A function from lines of scores to items; a detector within clusters needs the group of each."""

    def read(lines: list[str]) -> list[Item]:
        items = [parse_score(line) for line in lines]
        if not grouped:
            return [dataclasses.replace(item, group=None) for item in items]
        return [
            item
            if item.unreadable or item.group is not None
            else Item(item.key, unreadable="has no group, which WHAT needs", id=item.id)
            for item in items
        ]

    return read


def parse_score(line: str) -> Item:
    """The item of a number, or of a JSON object with `score` and, optionally, `key` and `group`.

    An object with a key counts once, whatever its score; a bare number always counts.

    Example:
        >>> parse_score("3.5").score, parse_score('{"key": "a.png", "score": 2}').key, parse_score("many").unreadable
        (3.5, 'a.png', 'not a finite number')
    """
    key, value, group = line.strip()[:200], None, None
    identity = ""
    try:
        parsed: Any = json.loads(line)
        if isinstance(parsed, dict):
            value, group = parsed.get("score"), parsed.get("group")
            group = group if isinstance(group, int) and not isinstance(group, bool) else None
            if (given := parsed.get("key")) is not None:
                key, identity = str(given), identify(given)
        else:
            value, key = parsed, ""
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return Item(key, float(value), id=identity, group=group)
    except (ValueError, RecursionError, OverflowError):
        pass
    return Item(key or line.strip()[:200], unreadable="not a finite number", id=identity)
