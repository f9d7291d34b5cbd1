"""HTTP connections, which may be slow, broken or in the middle of a request when the server stops."""

import contextlib
import dataclasses
import http.server
import math
import socket
import socketserver
import threading
import time
import urllib.parse
import zlib
from typing import Any

from tfbnood.serving.standin.answers import error_body
from tfbnood.serving.standin.rest import RestError
from tfbnood.serving.standin.servables import say

__all__ = ["HttpServer"]

_SOCKET_SECONDS = (
    30  # the real server's time-out, for a connection without a request and for writing an answer
)
_UPLOAD_GRACE, _DRAIN_SECONDS = 5.0, 60.0
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclasses.dataclass
class _Connection:
    """The state of a connection: idle, opening (the head of a request arrives), reading (its body) or answering."""

    state: str
    since: float
    deadline: float = math.inf  # when the request must have arrived
    late: bool = False


class HttpServer(http.server.ThreadingHTTPServer):
    """Tracks the states of its connections, so that none delays others or the shutdown.

    Args:
        address: to listen on.
        answer: called with method, path and body; returns status, content type and content.
        max_body: maximum bytes of a body; more is answered with 413.
        max_connections: open at a time; a further one replaces the one that has waited longest for a request.
            request_seconds: time limit from the first byte of a request to its last; else 408.
    """

    request_queue_size = 128
    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        answer: Any,
        *,
        max_body: int,
        max_connections: int,
        request_seconds: float,
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.answer = answer
        self.max_body = max_body
        self.request_seconds = request_seconds
        self.draining = False
        self._max_connections = max_connections
        self._waiting = False
        self._changed = threading.Condition()
        self._connections: dict[Any, _Connection] = {}
        super().__init__(address, _Handler, bind_and_activate=False)
        try:
            self.server_bind()
        except BaseException:
            self.server_close()
            raise

    def server_bind(self) -> None:
        # Not HTTPServer's method, which asks the DNS for this machine's name.
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self.set_state(request, "idle")
        with self._changed:
            if len(self._connections) <= self._max_connections:
                return True
            # Connections with the head of a request are served; of the others, the one unchanged longest is closed.
            loose = [
                each
                for each, about in self._connections.items()
                if each is not request and about.state in ("idle", "opening")
            ]
            if loose:
                oldest = min(loose, key=lambda each: self._connections[each].since)
                del self._connections[oldest]
                _shut(oldest, socket.SHUT_RDWR)
                return True
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.send(_BUSY)
        return False

    def service_actions(self) -> None:
        """Called several times per second: ends the requests that arrive too slowly."""
        now = time.monotonic()
        with self._changed:
            for connection, about in self._connections.items():
                if now > about.deadline:
                    about.late = True
                    _shut(connection, socket.SHUT_RD)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._connections.pop(request, None)
            self._changed.notify_all()

    def set_state(self, request: Any, state: str) -> None:
        """Records the state of a connection; the time limit of a request starts with its first byte."""
        now = time.monotonic()
        with self._changed:
            about = self._connections.setdefault(request, _Connection(state, now))
            if state == "opening":
                about.deadline = now + self.request_seconds
            elif state != "reading":
                about.deadline = math.inf
            about.state, about.since = state, now
            self._changed.notify_all()

    def is_late(self, request: Any) -> bool:
        """Whether the request of a connection took too long to arrive."""
        with self._changed:
            return request in self._connections and self._connections[request].late

    def handle_error(self, request: Any, client_address: Any) -> None:
        say(f"the connection of {client_address[0]} broke")

    def handle_timeout(self) -> None:
        self._waiting = False

    def drain(self) -> None:
        self.draining = True
        self.shutdown()
        # Clients that the system has already accepted are answered, too.
        self.timeout, self._waiting = 0, True
        while self._waiting:
            self.handle_request()
        self.socket.close()
        began = time.monotonic()
        with self._changed:
            while self._connections and (spent := time.monotonic() - began) < _DRAIN_SECONDS:
                done = {"idle", "opening"}
                self._stop_reading(done if spent < _UPLOAD_GRACE else done | {"reading"})
                self._changed.wait(0.1)
            self._stop_reading({"idle", "opening", "reading", "answering"})

    def _stop_reading(self, states: set[str]) -> None:
        """A request that has arrived can still be read; idle connections see the end."""
        for connection, about in self._connections.items():
            if about.state in states:
                _shut(connection, socket.SHUT_RD)


def _shut(connection: Any, how: int) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(how)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "tfbnood-development-server"
    sys_version = ""
    timeout = _SOCKET_SECONDS
    disable_nagle_algorithm = True
    server: HttpServer

    def handle(self) -> None:
        # A client that hangs up or falls silent does not affect others.
        with contextlib.suppress(OSError):
            super().handle()

    def handle_one_request(self) -> None:
        # A connection may be idle for a while; the time limit starts with the first byte of a request.
        if not self.rfile.peek(1):  # type: ignore[attr-defined]
            self.close_connection = True
            return
        self.server.set_state(self.connection, "opening")
        super().handle_one_request()

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
            self._check_in_time()
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
        while size := self._chunk_size():
            if size < 0:
                raise RestError(400, "Malformed request: chunk size")
            self._allowed(len(body) + size)
            body += self._exactly(size)
            self.rfile.readline(3)
        while self.rfile.readline(65536).strip():  # trailers
            pass
        return bytes(body)

    def _chunk_size(self) -> int:
        line = self.rfile.readline(64)
        if not line.endswith(b"\n"):
            self._check_in_time()
        return int(line.partition(b";")[0].strip() or b"x", 16)

    def _exactly(self, length: int) -> bytes:
        content = self.rfile.read(length)
        if len(content) < length:
            self._check_in_time()
            raise ConnectionError("the client left in the middle of a request")
        return content

    def _check_in_time(self) -> None:
        if self.server.is_late(self.connection):
            limit = self.server.request_seconds
            raise RestError(408, f"The request must arrive within {limit:g} s.")

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
        """Answers without reading the rest of the request, and hangs up once the client has had time to see it."""
        self.close_connection = True
        self._send(error.code, "application/json", error_body(error.message))
        self.connection.shutdown(socket.SHUT_WR)
        # Hanging up while the client still sends would reset the connection and lose the answer.
        end = time.monotonic() + _UPLOAD_GRACE
        while time.monotonic() < end and self.rfile.read1(2**16):
            pass
