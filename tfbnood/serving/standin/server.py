"""A development server that speaks TensorFlow Serving's REST API, for machines without `tensorflow_model_server`."""

import contextlib
import gc
import json
import os
import queue
import re
import signal
import sys
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tfbnood._core.signals import handle_signals
from tfbnood.errors import ServingError
from tfbnood.serving.standin import BATCH_TIMEOUT_MICROS, MAX_BATCH_SIZE, MAX_ROWS, rest
from tfbnood.serving.standin.answers import error_body, response_body
from tfbnood.serving.standin.config import ModelConfig
from tfbnood.serving.standin.connections import HttpServer
from tfbnood.serving.standin.examples import check_examples, refusal
from tfbnood.serving.standin.merging import Merger
from tfbnood.serving.standin.rest import RestError
from tfbnood.serving.standin.servables import Models, Servable, say

__all__ = ["Server"]

MAX_BODY = 64 * 2**20
_BUSY_SECONDS = 30  # the real server's time-out
_JSON, _HTML = "application/json", "text/html"
_NOT_FOUND = b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>\n<H1>Not Found</H1>\n</BODY></HTML>\n"
_WHICH = r"(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_CALL = re.compile(rf"/v1/models/([^/:]+){_WHICH}:(classify|regress|predict)", re.IGNORECASE)
_LOOK = re.compile(rf"/v1/models(?:/([^/:]+))?{_WHICH}(?:/(metadata))?", re.IGNORECASE)


class Server:
    """Serves models from a background thread (`start`, `close`, `with`) or until Ctrl-C (`serve_forever`).

    Args:
        models: what to serve, from `models_from`.
        host: address to listen on. Defaults to this machine only.
        port: 0 picks a free one.
        merge: join the rows of concurrent requests into one call, as server-side batching does.
        max_batch_size: with `merge`, the maximum number of rows per call; larger requests are answered with 400.
            Defaults to 1000, as on the real server.
        batch_timeout_micros: with `merge`, how long a call waits for other requests.
        max_rows: maximum rows per request; more are answered with 400. The real server has no such limit.
        max_body: maximum bytes of a request's body; more are answered with 413.
        max_connections: open at a time; a further one replaces the one that has been idle longest.
        request_seconds: time limit for a request to arrive; else it is answered with 408.

    Example:
        >>> from tfbnood.serving import Client, Server, models_from
        >>> pixels = tfbnood.Detector(None, "pixel_pca", reference=x.train).calibrate(x.calibration)
        >>> version = pixels.export(folder / "digits")
        >>> with Server(models_from(folder), port=0) as server:
        ...     Client(server.url, "digits").score(255 - x.test[:4]).is_ood
        array([ True,  True,  True,  True])
    """

    def __init__(
        self,
        models: Iterable[ModelConfig],
        host: str = "127.0.0.1",
        port: int = 8501,
        *,
        merge: bool = False,
        max_batch_size: int = MAX_BATCH_SIZE,
        batch_timeout_micros: int = BATCH_TIMEOUT_MICROS,
        max_rows: int = MAX_ROWS,
        max_body: int = MAX_BODY,
        max_connections: int = 512,
        request_seconds: float = 30,
    ) -> None:
        _check_positive(
            max_batch_size=max_batch_size,
            max_rows=max_rows,
            max_body=max_body,
            max_connections=max_connections,
            request_seconds=request_seconds,
        )
        if batch_timeout_micros < 0:
            raise ServingError(
                f"batch_timeout_micros must not be negative. Received: {batch_timeout_micros}"
            )
        self._models = Models(models)
        self._host = host
        self.port = port
        # More concurrent calls than cores would only slow each other down.
        self._slots = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._merger: Merger | None = None
        if merge:
            self._merger = Merger(
                self._call, max_batch_size=max_batch_size, seconds=batch_timeout_micros / 1e6
            )
        self._max_rows = max_rows
        self._limits: dict[str, Any] = {
            "max_body": max_body,
            "max_connections": max_connections,
            "request_seconds": request_seconds,
        }
        self._http: HttpServer | None = None
        self.is_loading = False

    @property
    def url(self) -> str:
        """The address for clients."""
        host = "127.0.0.1" if self._host in ("", "0.0.0.0") else self._host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> "Server":
        """Loads the models and answers requests in the background.

        Raises:
            ServingError: the port is taken, or a model cannot be loaded.
        """
        listener = self._bind()
        self._load(listener)
        return self._listen(listener)

    def close(self) -> None:
        """Stops listening, finishes the requests in flight, and returns when they are answered."""
        self._close(wait=True)

    def serve_forever(self) -> None:
        """Serves until Ctrl-C or SIGTERM, then drains. A second Ctrl-C does not wait.

        Raises:
            ServingError: the port is taken, or a model cannot be loaded.
            KeyboardInterrupt: Ctrl-C while the models are loaded.
            SystemExit: SIGTERM while the models are loaded. After both, a thread may still be inside TensorFlow,
                where only the end of the process stops it; `is_loading` tells.
        """
        listener = self._bind()
        # Its `put` may interrupt its own `get`, as in a signal handler; an Event could deadlock.
        events = queue.SimpleQueue[int | BaseException | None]()

        def load() -> None:
            try:
                self._load(listener)
                events.put(None)
            except BaseException as error:  # for the main thread to raise
                events.put(error)

        with handle_signals(lambda number, _: events.put(number)):
            # In a separate thread: no signal is handled inside TensorFlow, which takes many seconds.
            threading.Thread(target=load, name="tfbnood-loader", daemon=True).start()
            event = _wait_for(events)
            if isinstance(event, BaseException):
                raise event
            if event is not None:
                listener.server_close()
                raise KeyboardInterrupt if event == signal.SIGINT else SystemExit(0)
            self._listen(listener)
            _wait_for(events)
        say("finishing the requests in flight")
        self._close(wait=False)

    def _bind(self) -> HttpServer:
        if self._http is not None:
            raise ServingError(f"the server is already running at {self.url}")
        try:
            return HttpServer((self._host, self.port), self._answer, **self._limits)
        except (OSError, OverflowError) as error:
            raise ServingError(f"cannot listen on {self._host}:{self.port} ({error})") from error

    def _load(self, listener: HttpServer) -> None:
        self.is_loading = True
        try:
            if "tensorflow" not in sys.modules:
                say("starting TensorFlow …")
            _set_tensorflow_aside()
            self._models.load()
        except BaseException:
            listener.server_close()
            gc.unfreeze()
            raise
        finally:
            self.is_loading = False

    def _listen(self, listener: HttpServer) -> "Server":
        listener.server_activate()
        self._http = listener
        self.port = listener.server_address[1]
        self._models.watch()
        threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
        for name in self._models.names:
            say(f"serving {name} at {self.url}/v1/models/{urllib.parse.quote(name, safe='')}")
        say(f"listening at {self.url}: for development, not for production; follows {rest.FOLLOWS}")
        return self

    def _close(self, *, wait: bool) -> None:
        if self._http is not None:
            self._http.drain()
            self.is_loading = not self._models.close(wait=wait)
            self._http = None
            gc.unfreeze()

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        if not path.lower().startswith("/v1/"):
            return 404, _HTML, _NOT_FOUND
        try:
            return 200, _JSON, self._route(method, path, body)
        except RestError as error:
            return error.code, _JSON, error_body(error.message)
        except Exception as error:  # our own bug must not look like a broken connection
            say(f"{method} {path} failed ({type(error).__name__}: {error})")
            return 500, _JSON, error_body(f"{type(error).__name__}: {error}")

    def _route(self, method: str, path: str, body: bytes) -> bytes:
        match = {"POST": _CALL, "GET": _LOOK}.get(method, _CALL).fullmatch(path)
        if method not in ("GET", "POST") or match is None:
            raise RestError(400, f"Malformed request: {method} {path}")
        name, version, label, what = match.groups()
        if name is None:
            raise RestError(400, "Missing model name in request.")
        which = (
            urllib.parse.unquote(name),
            _number(version),
            label and urllib.parse.unquote(label),
        )
        if method == "POST":
            if what == "predict":
                return self._predict(which, body)
            if what in ("classify", "regress"):
                return self._classify_or_regress(what, which, body)
            raise RestError(400, f"Malformed request: {method} {path}")  # such as :Predict
        if what:
            return json.dumps(self._models.find(*which).metadata(), indent=1).encode()
        return json.dumps(self._models.status(*which), indent=1).encode()

    def _predict(self, which: tuple[str, int | None, str | None], body: bytes) -> bytes:
        with self._slot():
            document = rest.parse_json(body)
            signature = rest.signature_of(document)
            servable = self._models.find(*which)
            arrays, row = rest.tensors_of(document, servable.inputs(signature))
        rows = max((len(array) for array in arrays.values() if array.ndim), default=1)
        if rows > self._max_rows:
            raise RestError(
                400,
                f"A request may have at most {self._max_rows} rows (max_rows): send several. Received: {rows}",
            )
        call = self._merger.call if self._merger else self._call
        return response_body(call(servable, signature, arrays), row=row)

    def _classify_or_regress(
        self, method: str, which: tuple[str, int | None, str | None], body: bytes
    ) -> bytes:
        with self._slot():
            document = rest.parse_json(body)
            signature = rest.signature_of(document)
            check_examples(document)
            raise refusal(method, signature, self._models.find(*which).signatures)

    def _call(
        self, servable: Servable, signature: str, arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        with self._slot():
            return servable.run(signature, arrays)

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(timeout=_BUSY_SECONDS):
            raise RestError(503, "The server is busy with other requests.")
        try:
            yield
        finally:
            self._slots.release()


def _set_tensorflow_aside() -> None:
    """Excludes TensorFlow's objects from garbage collection, which took 10 times as long as reading a request."""
    import tensorflow  # noqa: F401

    gc.collect()
    gc.freeze()


def _number(version: str | None) -> int | None:
    if version is None:
        return None
    if len(version) > 20 or int(version) >= 2**63:
        raise RestError(400, f"Failed to convert version: {version} to numeric.")
    return int(version)


def _check_positive(**options: float) -> None:
    for name, value in options.items():
        if not value > 0:
            raise ServingError(f"{name} must be positive. Received: {value}")


def _wait_for(events: queue.SimpleQueue[Any]) -> Any:
    """The next event, also if it is a signal that arrives just before the wait and so does not interrupt it."""
    while True:
        with contextlib.suppress(queue.Empty):
            return events.get(timeout=0.2)
