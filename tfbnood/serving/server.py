"""A development server that speaks TensorFlow Serving's REST API, for machines without `tensorflow_model_server`."""

import contextlib
import gc
import http.server
import json
import os
import re
import signal
import socket
import socketserver
import threading
import time
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tfbnood.serving import rest
from tfbnood.serving.client import ServingError
from tfbnood.serving.models import ModelConfig, Models, Servable, say
from tfbnood.serving.rest import RestError

__all__ = ["Server"]

MAX_BODY = 64 * 2**20
_SOCKET_SECONDS = 30  # the real server's time-out, for one read or write of a client
_UPLOAD_GRACE, _DRAIN_SECONDS = 5.0, 60.0
_CONNECTIONS = 512
_MERGED_ROWS, _MERGE_SECONDS = 256, 0.004
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
        >>> with Server(models_from("savedmodels"), port=0) as server:  # doctest: +SKIP
        ...     scores = Client(server.url, "digits").score(images)
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
        self._merger = _Merger(self._call) if merge else None
        self._max_body = max_body
        self._http: _HttpServer | None = None

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
            listener = _HttpServer((self._host, self.port), self._answer, self._max_body)
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
        if not self._slots.acquire(timeout=_SOCKET_SECONDS):
            raise RestError(503, "The server is busy with other requests.")
        try:
            yield
        finally:
            self._slots.release()


class _Merger:
    """Joins concurrent calls: the first waits a moment for others, then calls for all of them."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._open: dict[tuple, _Batch] = {}

    def call(
        self, servable: Servable, signature: str, arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The outputs for the rows of one request."""
        rows = _rows(arrays)
        shapes = tuple((name, arrays[name].shape[1:]) for name in sorted(arrays))
        key = (servable, signature, shapes)
        with self._lock:
            batch = self._open.get(key)
            leads = batch is None or batch.rows + rows > _MERGED_ROWS
            if batch is None or leads:
                batch = self._open[key] = _Batch()
            start = batch.rows
            batch.requests.append(arrays)
            batch.rows += rows
            if batch.rows >= _MERGED_ROWS:
                batch.full.set()
        if leads:
            batch.full.wait(_MERGE_SECONDS)
            with self._lock:  # from here on nobody joins
                if self._open.get(key) is batch:
                    del self._open[key]
            batch.run(self._call, servable, signature)
        batch.done.wait()
        if batch.error is not None:
            raise batch.error
        return {name: array[start : start + rows] for name, array in batch.outputs.items()}


class _Batch:
    def __init__(self) -> None:
        self.requests: list[Mapping[str, np.ndarray]] = []
        self.rows = 0
        self.full, self.done = threading.Event(), threading.Event()
        self.outputs: dict[str, np.ndarray] = {}
        self.error: Exception | None = None

    def run(self, call: Any, servable: Servable, signature: str) -> None:
        try:
            joined = {
                name: np.concatenate([arrays[name] for arrays in self.requests])
                for name in self.requests[0]
            }
            outputs = call(servable, signature, joined)
            for array in outputs.values():
                if array.ndim == 0:
                    raise RestError(400, "Batched output tensor has 0 dimensions")
                if len(array) != self.rows:
                    raise RestError(
                        400,
                        "Batched output tensor's 0th dimension does not equal the sum of the 0th "
                        "dimension sizes of the input tensors",
                    )
            self.outputs = outputs
        except Exception as error:  # all who were merged get it, as from the real server
            self.error = error
        finally:
            self.done.set()


class _HttpServer(http.server.ThreadingHTTPServer):
    """Knows its connections and what they are at, so that closing can wait for answers, not for idlers."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, address: tuple[str, int], answer: Any, max_body: int) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.answer = answer
        self.max_body = max_body
        self.draining = False
        self._waiting = False
        self._changed = threading.Condition()
        self._connections: dict[Any, str] = {}
        super().__init__(address, _Handler, bind_and_activate=False)
        try:
            self.server_bind()
        except BaseException:
            self.server_close()
            raise

    def server_bind(self) -> None:
        # Not HTTPServer's own, which asks the DNS for this machine's name.
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self.set_state(request, "idle")
        return len(self._connections) <= _CONNECTIONS

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._connections.pop(request, None)
            self._changed.notify_all()

    def set_state(self, request: Any, state: str) -> None:
        with self._changed:
            self._connections[request] = state
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        say(f"the connection of {client_address[0]} broke")

    def handle_timeout(self) -> None:
        self._waiting = False

    def drain(self) -> None:
        self.draining = True
        self.shutdown()
        # Clients that were already let in by the system are answered too.
        self.timeout, self._waiting = 0, True
        while self._waiting:
            self.handle_request()
        self.socket.close()
        began = time.monotonic()
        with self._changed:
            while self._connections and (spent := time.monotonic() - began) < _DRAIN_SECONDS:
                done = {"idle"} if spent < _UPLOAD_GRACE else {"idle", "reading"}
                self._stop_reading(done)
                self._changed.wait(0.1)
            self._stop_reading({"idle", "reading", "answering"})

    def _stop_reading(self, states: set[str]) -> None:
        """A request that has arrived can still be read; who waits for one sees the end."""
        for connection, state in self._connections.items():
            if state in states:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "tfbnood-development-server"
    sys_version = ""
    timeout = _SOCKET_SECONDS
    disable_nagle_algorithm = True
    server: _HttpServer

    def handle(self) -> None:
        # Who hangs up or falls silent is of no interest to anyone else.
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def handle_expect_100(self) -> bool:
        try:
            self._length()
        except RestError as error:
            self._refuse(error)
            return False
        return super().handle_expect_100()

    def do_POST(self) -> None:
        self.server.set_state(self.connection, "reading")
        try:
            body = self._body()
            path = urllib.parse.urlsplit(self.path).path
        except RestError as error:
            self._refuse(error)
        except ValueError as error:
            self._refuse(RestError(400, f"Malformed request: {error}"))
        else:
            self.server.set_state(self.connection, "answering")
            self._send(*self.server.answer(self.command, path, body))
            self.server.set_state(self.connection, "idle")

    do_GET = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _length(self) -> int:
        text = self.headers.get("Content-Length", "0").strip()
        if not (text.isascii() and text.isdecimal()):
            raise RestError(400, f"Malformed request: Content-Length {text}")
        return self._allowed(int(text[:20]))

    def _allowed(self, length: int) -> int:
        if length > self.server.max_body:
            raise RestError(
                413, f"The body must have at most {self.server.max_body} bytes. Received: {length}"
            )
        return length

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            body = self._chunks()
        else:
            body = self._exactly(self._length())
        if self.headers.get("Content-Encoding", "").lower() != "gzip":
            return body
        try:
            body = zlib.decompressobj(31).decompress(body, self.server.max_body + 1)
        except zlib.error as error:
            raise RestError(400, f"Malformed request: gzip {error}") from error
        self._allowed(len(body))
        return body

    def _chunks(self) -> bytes:
        body = bytearray()
        while size := int(self.rfile.readline(64).partition(b";")[0].strip() or b"x", 16):
            if size < 0:
                raise RestError(400, "Malformed request: chunk size")
            self._allowed(len(body) + size)
            body += self._exactly(size)
            self.rfile.readline(3)
        while self.rfile.readline(65536).strip():  # trailers
            pass
        return bytes(body)

    def _exactly(self, length: int) -> bytes:
        content = self.rfile.read(length)
        if len(content) < length:
            raise ConnectionError("the client left in the middle of a request")
        return content

    def _send(self, code: int, kind: str, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection or self.server.draining:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, error: RestError) -> None:
        """Answers without the rest of the request, and hangs up when the client has had time to see it."""
        self.close_connection = True
        self._send(error.code, _JSON, rest.error_body(error.message))
        self.connection.shutdown(socket.SHUT_WR)
        # Hanging up on a client that still sends would reset the connection and lose the answer.
        end = time.monotonic() + _UPLOAD_GRACE
        while time.monotonic() < end and self.rfile.read1(2**16):
            pass


def _set_tensorflow_aside() -> None:
    """Spares the garbage collector TensorFlow's own objects: it took 10 times as long as reading a request."""
    import tensorflow  # noqa: F401

    gc.collect()
    gc.freeze()


def _rows(arrays: Mapping[str, np.ndarray]) -> int:
    sizes = {array.shape[:1] for array in arrays.values()}
    if () in sizes:
        raise RestError(400, "Batching Run() input tensors must have at least one dimension")
    if len(sizes) > 1:
        raise RestError(400, "Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()[0]


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
