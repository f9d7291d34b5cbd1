"""A development server that speaks TensorFlow Serving's REST API, for machines without `tensorflow_model_server`."""

import contextlib
import gc
import json
import os
import re
import signal
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tfbnood.errors import ServingError
from tfbnood.serving.standin import rest
from tfbnood.serving.standin.config import ModelConfig
from tfbnood.serving.standin.connections import HttpServer
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
        max_body: bytes of a request's body; more is answered with 413.

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
        max_body: int = MAX_BODY,
    ) -> None:
        self._models = Models(models)
        self._host = host
        self.port = port
        # More calls at a time than cores would only slow each other down.
        self._slots = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._merger = Merger(self._call) if merge else None
        self._max_body = max_body
        self._http: HttpServer | None = None

    @property
    def url(self) -> str:
        """Where clients find the server."""
        host = "127.0.0.1" if self._host in ("", "0.0.0.0") else self._host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> "Server":
        """Loads the models and answers from now on, in the background.

        Raises:
            ServingError: the port is taken, or a model cannot be loaded.
        """
        if self._http is not None:
            raise ServingError(f"the server runs already at {self.url}")
        try:
            listener = HttpServer((self._host, self.port), self._answer, self._max_body)
        except (OSError, OverflowError) as error:
            raise ServingError(f"cannot listen on {self._host}:{self.port} ({error})") from error
        try:
            _set_tensorflow_aside()
            self._models.load()
        except BaseException:
            listener.server_close()
            gc.unfreeze()
            raise
        listener.server_activate()
        self._http = listener
        self.port = listener.server_address[1]
        self._models.watch()
        threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
        say(f"listens at {self.url}: for development, not for production")
        return self

    def close(self) -> None:
        """Stops listening, finishes the requests in flight, and returns when they are answered."""
        if self._http is not None:
            self._http.drain()
            self._models.close()
            self._http = None
            gc.unfreeze()

    def serve_forever(self) -> None:
        """Serves until Ctrl-C or SIGTERM, then drains. A second Ctrl-C does not wait."""
        stop = threading.Event()
        with _on_signals(stop):
            self.start()
            stop.wait()
        say("finishes the requests in flight")
        self.close()

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
            return error.code, _JSON, rest.error_body(error.message)
        except Exception as error:  # a mistake of ours must not look like a broken connection
            say(f"{method} {path} failed ({type(error).__name__}: {error})")
            return 500, _JSON, rest.error_body(f"{type(error).__name__}: {error}")

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
            if what != "predict":
                raise RestError(
                    501, f"{what} is not implemented: the development server has only predict"
                )
            return self._predict(which, body)
        if what:
            return json.dumps(self._models.find(*which).metadata(), indent=1).encode()
        return json.dumps(self._models.status(*which), indent=1).encode()

    def _predict(self, which: tuple[str, int | None, str | None], body: bytes) -> bytes:
        with self._slot():
            document = rest.parse_json(body)
            signature = rest.signature_of(document)
            servable = self._models.find(*which)
            arrays, row = rest.tensors_of(document, servable.inputs(signature))
        call = self._merger.call if self._merger else self._call
        return rest.response_body(call(servable, signature, arrays), row=row)

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
    """Spares the garbage collector TensorFlow's own objects: it took 10 times as long as reading a request."""
    import tensorflow  # noqa: F401

    gc.collect()
    gc.freeze()


def _number(version: str | None) -> int | None:
    if version is None:
        return None
    if len(version) > 20 or int(version) >= 2**63:
        raise RestError(400, f"Failed to convert version: {version} to numeric.")
    return int(version)


@contextlib.contextmanager
def _on_signals(stop: threading.Event) -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM set an event, where signals can be handled: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda *_: stop.set()) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
