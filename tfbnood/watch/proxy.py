"""Watches the answers of a served model from between its clients and the server.

An answer is sent to the client once its images are in the journal. A client that did not get it, because it hung up or
the proxy was killed, repeats the same bytes: such a request is answered, but not counted twice.
"""

import collections
import concurrent.futures
import functools
import queue
import re
import threading
import time
import urllib.parse
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tfbnood.errors import ServingError
from tfbnood.watch.answers import WATCHED, Row, picture_of, rows_of, signature_of, unpacked
from tfbnood.watch.forward import Exchange, ForwardingServer
from tfbnood.watch.held_out import HeldOut
from tfbnood.watch.items import Item, identify

__all__ = ["ProxySource", "split_url"]

_WHICH = r"(?:/versions/[0-9]+|/labels/[^/:]+)?"
_MODEL = re.compile(rf"/v1/models/([^/:]+){_WHICH}/?")
_COMMIT_SECONDS, _DRAIN_SECONDS = 10.0, 10.0
_MOST_LOST = 1024
_ALL = 2**62  # rows
_TOLERANCE = 1e-6  # of float32


def split_url(url: str) -> tuple[str, str]:
    """The server and the model's name in a URL such as `http://127.0.0.1:8501/v1/models/fm`.

    Example:
        >>> split_url("http://127.0.0.1:8501/v1/models/fm")
        ('http://127.0.0.1:8501', 'fm')
    """
    parts = urllib.parse.urlsplit(url)
    found = _MODEL.fullmatch(parts.path)
    more = parts.query or parts.fragment
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or more or not found:
        raise ServingError(
            f"url must look like http://127.0.0.1:8501/v1/models/NAME. Received: {url}"
        )
    return f"{parts.scheme}://{parts.netloc}", urllib.parse.unquote(found[1])


class ProxySource:
    """Listens for clients of a served model, and yields the scores of their images.

    Args:
        url: of the model, as for `split_url`.
        held_out: scores of the detector that was exported.
        address: to listen on; port 0 picks a free one.
        lost: by digest, requests that may not have been answered, and how many of their rows were counted.
        requests: number of requests counted before.

    Attributes:
        requests: number of predict requests counted.
        unwatched: rows of answers that were not counted, from signatures that do not score row by row.
        mismatched: rows whose p-values are not those of `held_out`: another model is served.
        trouble: why the server cannot be reached; empty while it can.
        answers: number of answers passed on, by status.
    """

    def __init__(
        self,
        url: str,
        held_out: HeldOut,
        *,
        address: tuple[str, int] = ("127.0.0.1", 0),
        lost: Mapping[str, int] = MappingProxyType({}),
        requests: int = 0,
    ):
        server, self.model = split_url(url)
        name = re.escape(urllib.parse.quote(self.model, safe=""))
        also = re.escape(self.model)
        self._predict = re.compile(rf"/v1/models/(?:{name}|{also}){_WHICH}:predict(?:\?.*)?", re.I)
        self._held_out = held_out
        self.requests, self.trouble = requests, ""
        self.answers: collections.Counter[int] = collections.Counter()
        self.unwatched = self.mismatched = 0
        self._lost = collections.OrderedDict(lost)
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[list[Item], concurrent.futures.Future[bool]]] = (
            queue.SimpleQueue()
        )
        self._waiting: list[concurrent.futures.Future[bool]] = []
        self._ends: float | None = None
        self._server = ForwardingServer(
            server, address, before=self._before, lost=self._remember, trouble=self._note
        )
        host = address[0]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._server.port}"
        serve = functools.partial(self._server.serve_forever, 0.05)
        threading.Thread(target=serve, name="tfbnood-proxy", daemon=True).start()

    @property
    def finished(self) -> bool:
        if self._ends is None:
            return False
        return not self._server.active or time.monotonic() > self._ends

    def poll(self, seconds: float) -> list[Item]:
        """Items of the answers waiting to be passed on."""
        items: list[Item] = []
        try:
            while True:
                some, future = self._queue.get(timeout=0 if items else max(0.001, seconds))
                items += some
                self._waiting.append(future)
        except queue.Empty:
            return items

    def done(self, counted: bool) -> None:
        """Passes the answers on to their clients, counted or not."""
        for future in self._waiting:
            future.set_result(counted)
        self._waiting.clear()

    def stop(self) -> None:
        """Stops listening; requests in flight are answered."""
        if self._ends is None:
            self._server.shutdown()
            self._server.socket.close()
            self._ends = time.monotonic() + _DRAIN_SECONDS

    def _before(self, exchange: Exchange) -> None:
        with self._lock:
            self.answers[exchange.status] += 1
        items = self._items(exchange) if self._is_watched(exchange) else []
        if items:
            future: concurrent.futures.Future[bool] = concurrent.futures.Future()
            self._queue.put((items, future))
            # An answer must not wait for a disk that hangs.
            concurrent.futures.wait([future], _COMMIT_SECONDS)

    def _is_watched(self, exchange: Exchange) -> bool:
        asked = exchange.status == 200 and exchange.method == "POST"
        return asked and self._predict.fullmatch(exchange.path) is not None

    def _items(self, exchange: Exchange) -> list[Item]:
        try:
            answer = unpacked(exchange.answer, dict(_lower(exchange)).get("content-encoding"))
            request = unpacked(exchange.request, exchange.request_headers.get("Content-Encoding"))
        except Exception:  # zlib's and our own: the server judges what cannot be unpacked
            return []
        rows = rows_of(answer)
        if rows is None:
            return []
        digest = identify(exchange.path, exchange.request)
        with self._lock:
            counted = self._lost.pop(digest, 0)
            if counted >= len(rows):
                return []
            if signature_of(request) not in WATCHED:
                self.unwatched += len(rows)
                return []
            if not self._matches(rows):
                self.mismatched += len(rows)
                return []
            self.requests += 1
            number = self.requests
        called = exchange.request_headers.get("X-Request-Id") or f"request {number}"
        shape = self._held_out.image_shape
        return [
            Item(
                called if len(rows) == 1 else f"{called}, row {place}",
                row.score,
                "" if row.valid else "not a valid image, according to the server",
                group=row.group,
                request=digest,
                picture=functools.partial(picture_of, request, place, shape),
            )
            for place, row in enumerate(rows)
            if place >= counted  # After a kill, the journal may end within a request.
        ]

    def _matches(self, rows: list[Row]) -> bool:
        """Whether p-values and clusters, if any, are those of the held-out scores."""
        known = [row for row in rows if row.valid and row.p_value is not None]
        grouped = self._held_out.groups is not None
        if any((row.group is not None) != grouped for row in rows if row.valid):
            return False
        groups = np.array([row.group for row in known]) if grouped else None
        expected = self._held_out.p_values(np.array([row.score for row in known]), groups)
        told = np.array([row.p_value for row in known], np.float64)
        return bool((np.abs(expected - told) <= _TOLERANCE).all())

    def _remember(self, exchange: Exchange) -> None:
        if not self._is_watched(exchange):
            return
        with self._lock:
            self._lost[identify(exchange.path, exchange.request)] = _ALL
            while len(self._lost) > _MOST_LOST:
                self._lost.popitem(last=False)

    def _note(self, reason: str) -> None:
        self.trouble = reason


def _lower(exchange: Exchange) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in exchange.headers]
