"""`events.jsonl`: the write-ahead log. What it holds has happened; everything else is computed from it.

A chunk of lines is written and synced before anything else uses it. A kill in the middle leaves a partial line, which
the next start removes; on a full disk it is removed at once. Lines are numbered across all files, so that a reader
knows its position: when `events.jsonl` is large, it is renamed to `events-000001.jsonl` and not read again.
"""

import contextlib
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from tfbnood._core.files import writing
from tfbnood.errors import TfbnoodError

__all__ = ["Journal"]

_NAME = "events.jsonl"


class Journal:
    """Numbered lines of JSON that are durable once `append` returns.

    Args:
        folder: which the caller has locked.
        most_bytes: of one file.

    Attributes:
        lines: number of lines ever written.

    Example:
        >>> journal = Journal(folder)
        >>> journal.append([{"key": "a.png"}, {"key": "b.png"}])
        >>> journal.close()
        >>> again = Journal(folder)
        >>> [event["key"] for event in again.read(since=1)], again.lines
        (['b.png'], 2)
        >>> again.close()
    """

    def __init__(self, folder: str | os.PathLike[str], *, most_bytes: int = 64 * 2**20):
        self._folder, self._most_bytes = pathlib.Path(folder), most_bytes
        self._path = self._folder / _NAME
        with writing(self._path):
            self._file: BinaryIO = _open(self._path)
            _sync_folder(self._folder)
            self._size = _cut_half_line(self._file)
        try:
            self._first, last = self._ends()
        except TfbnoodError:
            self._file.close()
            raise
        self.lines = last + 1

    @property
    def position(self) -> tuple[int, int]:
        """The number of the file's first line, and its size, where the next line will start."""
        return self._first, self._size

    def start_at(self, line: int) -> None:
        """Numbers the first line of an empty file, whose predecessors were moved away."""
        if not self._size:
            self._first = self.lines = line

    def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Writes events, each with the number of its `line`, and returns when they are on the disk.

        Raises:
            TfbnoodError: if the system refuses, e.g. for lack of space; the file stays as it was.
        """
        numbered = [{"line": self.lines + place, **event} for place, event in enumerate(events)]
        # Strict JSON, with file names that are not UTF-8 escaped.
        content = b"".join(
            json.dumps(one, allow_nan=False, separators=(",", ":")).encode() + b"\n"
            for one in numbered
        )
        with writing(self._path):
            try:
                left = memoryview(content)
                while left:
                    left = left[self._file.write(left) :]
                os.fsync(self._file.fileno())
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file.fileno(), self._size)
                raise
        self._size += len(content)
        self.lines += len(events)

    def read(
        self, since: int = 0, position: tuple[int, int] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The lines from a given number on, as far as they are in the current file.

        Args:
            since: number of the first line to return.
            position: the value of `position` when that line was next; saves reading what is before it.
        """
        with open(self._path, "rb") as file:
            if position is not None and position[0] == self._first and position[1] <= self._size:
                file.seek(position[1])
            for text in file:
                event = self._parse(text)
                if event["line"] >= since:
                    yield event

    def rotate(self) -> bool:
        """Renames the file if it is large. By then, a checkpoint must include all of its lines."""
        if self._size < self._most_bytes:
            return False
        numbers = [int(found[1]) for found in map(_number, self._folder.iterdir()) if found]
        older = self._folder / f"events-{max(numbers, default=0) + 1:06d}.jsonl"
        with writing(self._path):
            self._path.rename(older)
            self._file.close()
            self._file = _open(self._path)
            _sync_folder(self._folder)
        self._size, self._first = 0, self.lines
        return True

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _ends(self) -> tuple[int, int]:
        """Numbers of the first and the last line; 0 and −1 in an empty file."""
        if not self._size:
            return 0, -1
        with open(self._path, "rb") as file:
            first = self._parse(file.readline())["line"]
            start = self._size
            tail = b""
            while tail.count(b"\n") < 2 and start > 0:
                start = max(0, start - 65536)
                file.seek(start)
                tail = file.read(self._size - start)
        return first, self._parse(tail.splitlines()[-1])["line"]

    def _parse(self, text: bytes) -> dict[str, Any]:
        try:
            event = json.loads(text)
            if isinstance(event["line"], int):
                return event
        except (ValueError, TypeError, LookupError, RecursionError):
            pass
        raise TfbnoodError(
            f"{self._path} must hold numbered lines of JSON; move it away to start again. "
            f"Received: {text[:80]!r}"
        )


def _open(path: pathlib.Path) -> BinaryIO:
    return open(path, "ab+", buffering=0)


def _cut_half_line(file: BinaryIO) -> int:
    """Removes what follows the last line end, and returns the size."""
    size = end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(file.fileno(), end)
        os.fsync(file.fileno())
    return end


def _number(path: pathlib.Path) -> re.Match[str] | None:
    return re.fullmatch(r"events-(\d+)\.jsonl", path.name)


def _sync_folder(folder: pathlib.Path) -> None:
    """Syncs the folder, and with it a new name, on systems where folders can be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
