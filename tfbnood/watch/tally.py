"""What pages and metrics show, as a function of the journal's lines; in bounded memory, except for a folder's files.

It is saved with the number of the next line, and resumes by reading from that line.
"""

import datetime
import json
import os
import zipfile
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tfbnood._core.files import atomic_path

__all__ = ["BUCKETS", "POINTS", "Tally"]

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Upper ends of the p-values' histogram."""

POINTS = 1024
_RECENT, _TIMES, _RAISED, _REQUESTS = 1000, 10_000, 20, 64
_MOST_SEEN = 500_000
_COUNTS = (
    *("lines", "images", "unreadable", "flagged", "discoveries", "alarms", "restarts"),
    *("stride", "requests_seen"),
)
_FORMAT = 1


class Tally:
    """Counts, a thinned timeline, recent p-values, past alarms, and which items were seen.

    Attributes:
        lines: number of the next line.
        images: with a score.
        unreadable: without.
        flagged: with a p-value of at most the false-alarm rate.
        discoveries: by online FDR.
        alarms: how often the alarm was raised.
        restarts: how often it was cleared.
        buckets: p-values by `BUCKETS`, not cumulative.
        p_value_sum: of all.
        points: `[index, time, log evidence, alarm]`, the largest evidence of each `stride` images.
        recent: the latest 1,000 p-values.
        times: of the latest 10,000 images.
        raised: the latest 20 alarms: index, time, key, since and its interval.
        last: the time of the last line; 0 before the first.
        reasons: why items were unreadable: the latest 20, as `(time, key, reason)`.
        requests: the latest 64 requests, each with its digest and how many of its rows were counted.
        pictures: by index, encoded thumbnails of the worst images.
        clean: whether it was saved at an orderly end.

    Example:
        >>> tally = Tally()
        >>> event = {"line": 0, "time": "2026-11-18T03:38:20.000+00:00", "key": "a.png", "index": 0, "score": 1.0}
        >>> tally.add({**event, "p_value": 0.03, "log_evidence": -1.0, "alarm": False})
        >>> tally.images, int(tally.buckets[5]), tally.lines
        (1, 1, 1)
    """

    def __init__(self) -> None:
        self.lines = self.images = self.unreadable = self.flagged = 0
        self.discoveries = self.alarms = self.restarts = self.requests_seen = 0
        self.stride = 1
        self.buckets = np.zeros(len(BUCKETS), np.int64)
        self.p_value_sum = self.last = 0.0
        self.points: list[list[float]] = []
        self.recent: deque[float] = deque(maxlen=_RECENT)
        self.times: deque[float] = deque(maxlen=_TIMES)
        self.raised: deque[dict[str, Any]] = deque(maxlen=_RAISED)
        self.reasons: deque[list[Any]] = deque(maxlen=_RAISED)
        self.requests: deque[list[Any]] = deque(maxlen=_REQUESTS)
        self.pictures: dict[int, str] = {}
        self.position: tuple[int, int] = (0, 0)
        self.clean = False
        self._seen: dict[int, None] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        """Counts one line."""
        event = {**event, "time": datetime.datetime.fromisoformat(event["time"]).timestamp()}
        self.lines, self.last = event["line"] + 1, event["time"]
        if event.get("id"):
            self.remember(event["id"])
        request = event.get("request")
        if request and self.requests and self.requests[-1][0] == request:
            self.requests[-1][1] += 1
        elif request:
            self.requests.append([request, 1])
            self.requests_seen += 1
        if "restart" in event:
            self.restarts += 1
        elif "unreadable" in event:
            self.unreadable += 1
            self.reasons.append([event["time"], event["key"], event["unreadable"]])
        elif "score" in event:
            self._add_image(event)

    def has(self, identity: str) -> bool:
        """Whether an item with this id was seen."""
        return bool(identity) and int(identity, 16) in self._seen

    def remember(self, identity: str) -> None:
        """Marks an id as seen; beyond 500,000 ids of a stream the oldest are forgotten."""
        self._seen[int(identity, 16)] = None

    def forget_all_but(self, identities: Collection[str]) -> None:
        """Keeps only the ids of existing files."""
        kept = {int(one, 16) for one in identities}
        self._seen = {one: None for one in self._seen if one in kept}

    def forget_oldest(self) -> None:
        """Keeps the latest 500,000 ids, for sources that cannot tell what still exists."""
        if len(self._seen) > 1.1 * _MOST_SEEN:
            self._seen = dict.fromkeys(list(self._seen)[-_MOST_SEEN:])

    def time_of(self, index: int) -> float | None:
        """The time of an image; None if it is too long ago."""
        place = index - (self.images - len(self.times))
        return self.times[place] if 0 <= place < len(self.times) else None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it atomically."""
        content = {
            "format": _FORMAT,
            **{name: getattr(self, name) for name in _COUNTS},
            **{name: list(getattr(self, name)) for name in ("raised", "reasons", "requests")},
            "last": self.last,
            "p_value_sum": self.p_value_sum,
            "pictures": {str(index): one for index, one in self.pictures.items()},
            "position": list(self.position),
            "clean": self.clean,
        }
        with atomic_path(path) as temporary:
            np.savez(
                temporary,
                allow_pickle=False,
                content=np.frombuffer(json.dumps(content).encode(), np.uint8),
                buckets=self.buckets,
                points=np.array(self.points, np.float64).reshape(-1, 4),
                recent=np.array(self.recent, np.float64),
                times=np.array(self.times, np.float64),
                seen=np.fromiter(self._seen, np.uint64, len(self._seen)),
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tally | None":
        """Reads what `save` wrote; None if there is nothing readable."""
        tally = cls()
        try:
            with np.load(path, allow_pickle=False) as arrays:
                content = json.loads(arrays["content"].tobytes())
                if content["format"] != _FORMAT:
                    return None
                tally.buckets = arrays["buckets"].astype(np.int64)
                tally.points = arrays["points"].tolist()
                tally.recent.extend(arrays["recent"].tolist())
                tally.times.extend(arrays["times"].tolist())
                tally._seen = dict.fromkeys(arrays["seen"].tolist())
            for name in (*_COUNTS, "last", "p_value_sum", "clean"):
                setattr(tally, name, content[name])
            for name in ("raised", "reasons", "requests"):
                getattr(tally, name).extend(content[name])
            tally.pictures = {int(index): one for index, one in content["pictures"].items()}
            tally.position = (content["position"][0], content["position"][1])
        except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile):
            return None
        return tally

    def _add_image(self, event: Mapping[str, Any]) -> None:
        p_value, index = event["p_value"], event["index"]
        self.images += 1
        self.buckets[np.searchsorted(BUCKETS, p_value - 1e-12)] += 1
        self.p_value_sum += p_value
        self.flagged += bool(event.get("flagged"))
        self.discoveries += bool(event.get("discovery"))
        self.recent.append(p_value)
        self.times.append(event["time"])
        if "since" in event:
            self.alarms += 1
            names = ("index", "time", "key", "since")
            self.raised.append({name: event[name] for name in names})
        evidence = event["log_evidence"]
        point = [index, event["time"], -np.inf if evidence is None else evidence, event["alarm"]]
        if self.points and int(self.points[-1][0]) // self.stride == index // self.stride:
            last = self.points[-1]
            last[2], last[3] = max(last[2], point[2]), max(last[3], float(point[3]))
            return
        self.points.append([float(one) for one in point])
        if len(self.points) > POINTS:
            self._thin()

    def _thin(self) -> None:
        self.stride *= 2
        merged: list[list[float]] = []
        for point in self.points:
            if merged and int(merged[-1][0]) // self.stride == int(point[0]) // self.stride:
                merged[-1][2] = max(merged[-1][2], point[2])
                merged[-1][3] = max(merged[-1][3], point[3])
            else:
                merged.append(point)
        self.points = merged
