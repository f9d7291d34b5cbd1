"""A watched stream: monitor, journal and tally, which stay consistent through kills and full disks.

**Exactly once, by construction.** Only lines of the journal count. An item is scored, passes through the monitor in
memory, and its line is written and synced; only then is it counted, shown or forgotten by its source. On a start the
monitor and the tally are read as last saved, and process the lines that are newer. A line holds the score itself, so
that the monitor is bit for bit the same as without the stop. An item whose id is in a line is not processed again.
"""

import contextlib
import datetime
import math
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfbnood._core.files import write_json
from tfbnood._core.runs import RunFolder
from tfbnood._version import __version__
from tfbnood.errors import DataError, TfbnoodError
from tfbnood.monitor import AutocorrelationWarning, Monitor
from tfbnood.watch.held_out import HeldOut
from tfbnood.watch.items import Item
from tfbnood.watch.journal import Journal
from tfbnood.watch.pictures import Pictures
from tfbnood.watch.tally import Tally

__all__ = ["Session"]

_SETTINGS, _STATE, _TALLY = "watch.json", "state", "tally.npz"
_EVERY_LINES, _EVERY_SECONDS = 5000, 30.0


class Session:
    """Takes items and keeps in a folder everything that must survive; `open` makes one.

    Attributes:
        monitor: processes the items.
        tally: what was counted.
        held_out: the scores to compare with.
        fpr: images with a p-value of at most this are flagged.
        notes: messages for the user that have not been printed yet.

    Example:
        >>> from tfbnood.watch import HeldOut, Item
        >>> held_out = HeldOut("mine", np.arange(99.0), (8, 8, 1), "pixel_pca")
        >>> with Session.open(folder / "out", held_out) as session:
        ...     events = session.take([Item("a.png", 50.0, id="1f"), Item("b.png", unreadable="truncated")])
        >>> events[0]["p_value"], events[1]["unreadable"]
        (0.5, 'truncated')
        >>> with Session.open(folder / "out", held_out) as session:
        ...     session.take([Item("a.png", 50.0, id="1f")]), session.tally.images
        ([], 1)
    """

    def __init__(
        self,
        folder: pathlib.Path,
        held_out: HeldOut,
        monitor: Monitor,
        journal: Journal,
        tally: Tally,
        fpr: float,
        clock: Callable[[], float],
    ):
        self._folder, self._journal, self._clock = folder, journal, clock
        self.held_out, self.monitor, self.tally, self.fpr = held_out, monitor, tally, fpr
        self.notes: list[str] = []
        self.pictures = Pictures(tally.pictures)
        self._saved_lines, self._saved_at = tally.lines, time.monotonic()

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        folder: str | os.PathLike[str],
        held_out: HeldOut,
        *,
        run_length: float = 10_000,
        seed: int = 0,
        thin: int | None = None,
        fdr: float | None = None,
        fpr: float | None = None,
        stream: str = "",
        most_bytes: int = 64 * 2**20,
        clock: Callable[[], float] = time.time,
    ) -> Iterator["Session"]:
        """Locks the folder, resumes what is in it, and saves at the end.

        Args:
            folder: a new or empty one, or the folder of an earlier session.
            held_out: scores to compare with.
            run_length: as for `tfbnood.Monitor`, like `seed`, `thin` and `fdr`.
            seed: of the order among ties.
            thin: bet on every thin-th image.
            fdr: also decide on single images.
            fpr: images with a p-value of at most this are flagged. Defaults to 0.01, or the smallest possible.
            stream: identifies the stream; another one needs another folder.
            most_bytes: of `events.jsonl` before it is renamed.
            clock: seconds since 1970.

        Raises:
            TfbnoodError: if another process watches here, or the folder belongs to a watch with other settings.
        """
        folder = pathlib.Path(folder)
        settings = {
            "held_out_sha256": held_out.sha256,
            "run_length": run_length,
            "seed": seed,
            "thin": thin,
            "fdr": fdr,
            "stream": stream,
        }
        place = RunFolder(folder, _SETTINGS, "watch", within="settings")
        with place.resume(settings) as earlier:
            if not earlier:
                about = {"tfbnood": __version__, "detector": held_out.name, "settings": settings}
                write_json(folder / _SETTINGS, about)
            groups = held_out.groups
            monitor = Monitor(held_out.scores, run_length, seed, groups=groups, thin=thin, fdr=fdr)
            journal = Journal(folder, most_bytes=most_bytes)
            try:
                monitor, tally = _resume(folder, monitor, journal)
                fpr = max(0.01, held_out.smallest_rate) if fpr is None else fpr
                session = cls(folder, held_out, monitor, journal, tally, fpr, clock)
                yield session
                session.save(clean=True)
            finally:
                journal.close()

    @staticmethod
    def is_open(folder: str | os.PathLike[str]) -> bool:
        """Whether a process has a session in the folder.

        Example:
            >>> Session.is_open(folder)
            False
        """
        folder = pathlib.Path(folder)
        if not (folder / _SETTINGS).is_file():
            return False
        try:
            with RunFolder(folder, _SETTINGS, "watch").lock():
                return False
        except TfbnoodError:
            return True

    def take(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Passes new items through the monitor into the journal; returns their lines.

        Raises:
            TfbnoodError: if they cannot be written. The session is then unusable; a new one resumes before them.
        """
        known: set[str] = set()
        fresh = []
        for item in items:
            if not item.id or not (item.id in known or self.tally.has(item.id)):
                fresh.append(item)
                known.add(item.id)
        if not fresh:
            return []
        events = self._events(fresh)
        first = self._journal.lines
        self._journal.append(events)
        for place, event in enumerate(events):
            event["line"] = first + place
            self.tally.add(event)
        self.pictures.keep(self.monitor.worst, events, fresh)
        return events

    def restart(self, *, forget: bool = False) -> None:
        """Clears the alarm, like `Monitor.restart`."""
        event = {
            "time": self._now(),
            "restart": True,
            "forget": forget,
            "index": self.monitor.count,
        }
        first = self._journal.lines
        self._journal.append([event])
        self.monitor.restart(forget=forget)
        self.tally.add({**event, "line": first})
        self.save()

    def save(self, *, clean: bool = False) -> None:
        """Saves monitor and tally; after a kill, the journal has what they lack."""
        self.monitor.save(self._folder / _STATE)
        self.tally.clean = clean
        self.tally.position = self._journal.position
        self.tally.pictures = self.pictures.encoded
        self.tally.save(self._folder / _TALLY)
        self.tally.clean = False
        self._saved_lines, self._saved_at = self.tally.lines, time.monotonic()
        if self._journal.rotate():
            self.tally.position = self._journal.position

    def save_now_and_then(self) -> None:
        """Saves if much is new, so that a start after a kill is quick."""
        new = self.tally.lines - self._saved_lines
        if new >= _EVERY_LINES or (new and time.monotonic() - self._saved_at > _EVERY_SECONDS):
            self.save()

    def _events(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        scored = [item for item in items if item.is_scored]
        was_on = self.monitor.alarm
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AutocorrelationWarning)
            found = self.monitor.update(
                scores=[item.score for item in scored],
                keys=[item.key for item in scored],
                groups=None if self.held_out.groups is None else [item.group for item in scored],
            )
        self.notes += [str(one.message) for one in caught]
        now, events, place = self._now(), [], 0
        for item in items:
            event: dict[str, Any] = {"time": now, "key": item.key}
            for name in ("id", "request"):
                if getattr(item, name):
                    event[name] = getattr(item, name)
            if not item.is_scored:
                events.append({**event, "unreadable": item.unreadable})
                continue
            event |= {
                "index": found.index + place,
                "score": float(found.score[place]),
                "p_value": float(found.p_value[place]),
                "stream_p_value": float(found.stream_p_value[place]),
                "log_evidence": _finite(found.log_evidence[place]),
                "log_martingale": _finite(found.log_martingale[place]),
                "flagged": bool(found.p_value[place] <= self.fpr * (1 + 1e-12)),
                "alarm": bool(found.alarm[place]),
            }
            if item.group is not None:
                event["group"] = item.group
            if found.discovery is not None:
                event["discovery"] = bool(found.discovery[place])
            if event["alarm"] and not was_on:
                was_on, since = True, self.monitor.since
                assert since is not None
                event["since"] = [int(since.value), int(since.low), int(since.high)]
            events.append(event)
            place += 1
        return events

    def _now(self) -> str:
        now = datetime.datetime.fromtimestamp(self._clock(), datetime.timezone.utc)
        return now.isoformat(timespec="milliseconds")


def _resume(folder: pathlib.Path, monitor: Monitor, journal: Journal) -> tuple[Monitor, Tally]:
    """Monitor and tally as last saved, with all lines since."""
    state = folder / _STATE
    tally = Tally.load(folder / _TALLY) or Tally()
    try:
        monitor = Monitor.load(state)
    except DataError:
        # Not saved yet, or lost in a power failure: all lines are processed again.
        if journal.position[0] > 0:
            raise TfbnoodError(
                f"{state} must hold the saved monitor, since earlier lines were moved out of events.jsonl. "
                f"Received: none that is readable; choose another --out"
            ) from None
    if monitor.count > tally.images and tally.lines < journal.position[0]:
        raise TfbnoodError(
            f"{folder / _TALLY} cannot be read, and earlier lines were moved out of events.jsonl; choose another --out"
        )
    if journal.lines == 0:
        journal.start_at(tally.lines)
    # It is saved first, so that a monitor is behind only if it was lost.
    behind = monitor.count < tally.images
    lines = journal.read() if behind else journal.read(tally.lines, tally.position)
    replayed = 0
    for event in lines:
        _take_again(monitor, event)
        if event["line"] >= tally.lines:
            tally.add(event)
            replayed += 1
    if tally.clean and not replayed:
        tally.requests.clear()  # All of them were answered.
    tally.clean = False
    return monitor, tally


def _take_again(monitor: Monitor, event: dict[str, Any]) -> None:
    if "index" not in event or event["index"] < monitor.count:
        return
    if "restart" in event:
        # Repeated without images in between, it changes nothing.
        monitor.restart(forget=event["forget"])
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AutocorrelationWarning)
        groups = [event["group"]] if "group" in event else None
        monitor.update(scores=[event["score"]], keys=[event["key"]], groups=groups)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
