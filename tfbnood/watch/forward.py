"""A server that forwards every request to another one and returns its answers unchanged."""

import contextlib
import dataclasses
import http.client
import http.server
import json
import socket
import socketserver
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any

from tfbnood.errors import ServingError

__all__ = ["Exchange", "ForwardingServer"]

_IDLE_SECONDS, _ANSWER_SECONDS = 75, 300
# Hop-by-hop headers; RFC 9110, section 7.6.1.
_HOP_BY_HOP = frozenset(
    {
        *(
            "connection",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
        ),
        *("te", "trailer", "transfer-encoding", "upgrade", "expect", "host", "content-length"),
    }
)


@dataclasses.dataclass(frozen=True, eq=False)
class Exchange:
    """A request and its answer, bodies as they were sent."""

    method: str
    path: str
    request: bytes
    request_headers: Any
    status: int
    reason: str
    headers: list[tuple[str, str]]
    answer: bytes


class ForwardingServer(http.server.ThreadingHTTPServer):
    """Answers like the server at `url`; with 502 while that cannot be reached.

    Args:
        url: of the other server, scheme, host and port.
        address: to listen on; port 0 picks a free one.
        before: called with an exchange before its answer is sent; it may block, but must not raise.
        lost: called with an exchange whose answer could not be delivered.
        trouble: called with the reason when the other server cannot be reached, and with "" when it answers again.
    """

    request_queue_size = 128
    daemon_threads = True

    def __init__(
        self,
        url: str,
        address: tuple[str, int],
        *,
        before: Callable[[Exchange], None],
        lost: Callable[[Exchange], None],
        trouble: Callable[[str], None],
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        self.url, self.netloc = f"{parts.scheme}://{parts.netloc}", parts.netloc
        self._secure = parts.scheme == "https"
        self.before, self.lost, self.trouble = before, lost, trouble
        self._active, self._changed = 0, threading.Condition()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _Handler)
        except (OSError, OverflowError) as error:
            raise ServingError(f"cannot listen on {address[0]}:{address[1]} ({error})") from error

    def server_bind(self) -> None:
        # Not HTTPServer's method, which asks the DNS for this machine's name.
        socketserver.TCPServer.server_bind(self)

    @property
    def port(self) -> int:
        return self.server_address[1]

    @property
    def active(self) -> int:
        """Requests whose answers have not been sent."""
        with self._changed:
            return self._active

    @contextlib.contextmanager
    def busy(self):
        """Counts a request while it is being answered."""
        with self._changed:
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._active -= 1

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the other server."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self.netloc, timeout=_ANSWER_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that hang up: they do not affect others."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    server: ForwardingServer
    _upstream: http.client.HTTPConnection | None = None

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()
        if self._upstream is not None:
            self._upstream.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def do_POST(self) -> None:
        with self.server.busy():
            try:
                body = self._body()
            except ValueError as error:
                self.close_connection = True
                self._send(self._refusal(400, f"Malformed request: {error}", b""))
                return
            exchange = self._exchange(body)
            self.server.before(exchange)
            try:
                self._send(exchange)
            except OSError:
                self.server.lost(exchange)
                raise

    do_GET = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _exchange(self, body: bytes) -> Exchange:
        for attempt in (1, 2):
            reused = self._upstream is not None
            try:
                exchange = self._ask(body)
            except (OSError, http.client.HTTPException) as error:
                if self._upstream is not None:
                    self._upstream.close()
                self._upstream = None
                # A server may just have closed an idle connection: scoring twice does no harm.
                if reused and attempt == 1 and not isinstance(error, TimeoutError):
                    continue
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                self.server.trouble(reason)
                late = isinstance(error, TimeoutError)
                return self._refusal(
                    504 if late else 502, f"{self.server.url} cannot be reached ({reason})", body
                )
            self.server.trouble("")
            return exchange
        raise AssertionError

    def _ask(self, body: bytes) -> Exchange:
        if self._upstream is None:
            self._upstream = self.server.connect()
        upstream = self._upstream
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        upstream.putheader("Host", self.server.netloc)
        dropped = _HOP_BY_HOP | _list_named(self.headers.get_all("Connection", []))
        for name, value in self.headers.items():
            if name.lower() not in dropped:
                upstream.putheader(name, value.encode("latin-1", "replace"))
        if body or "Content-Length" in self.headers:
            upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body or None)
        response = upstream.getresponse()
        answer = response.read()
        closing = _HOP_BY_HOP | _list_named(response.headers.get_all("Connection", []))
        headers = [one for one in response.headers.items() if one[0].lower() not in closing]
        # For HEAD, which has no body, the server states the length.
        length = response.headers.get("Content-Length") if self.command == "HEAD" else None
        headers.append(("Content-Length", length or str(len(answer))))
        if response.will_close:
            upstream.close()
            self._upstream = None
        return Exchange(
            self.command,
            self.path,
            body,
            self.headers,
            response.status,
            response.reason,
            headers,
            answer,
        )

    def _refusal(self, status: int, message: str, body: bytes) -> Exchange:
        answer = json.dumps({"error": message}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))]
        reason = http.client.responses[status]
        return Exchange(
            self.command, self.path, body, self.headers, status, reason, headers, answer
        )

    def _send(self, exchange: Exchange) -> None:
        self.send_response_only(exchange.status, exchange.reason)
        bare = exchange.status in (204, 304) or exchange.status < 200
        for name, value in exchange.headers:
            if not (bare and name == "Content-Length"):
                self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(exchange.answer)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks()
        text = self.headers.get("Content-Length", "0").strip()
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(f"Content-Length {text}")
        return self._exactly(int(text))

    def _chunks(self) -> bytes:
        body = bytearray()
        while size := int(self.rfile.readline(64).partition(b";")[0].strip() or b"x", 16):
            if size < 0:
                raise ValueError("chunk size")
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


def _list_named(values: list[str]) -> set[str]:
    """Headers that a Connection header names."""
    return {name.strip().lower() for value in values for name in value.split(",")}
