"""HTTP: connections that may be slow, broken or in the middle of a request when the server is to stop."""

import contextlib
import http.server
import socket
import socketserver
import threading
import time
import urllib.parse
import zlib
from typing import Any

from tfbnood.serving.standin import rest
from tfbnood.serving.standin.rest import RestError
from tfbnood.serving.standin.servables import say

__all__ = ["HttpServer"]

_SOCKET_SECONDS = 30  # the real server's time-out, for one read or write of a client
_UPLOAD_GRACE, _DRAIN_SECONDS = 5.0, 60.0
_CONNECTIONS = 512


class HttpServer(http.server.ThreadingHTTPServer):
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
    server: HttpServer

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
        self._send(error.code, "application/json", rest.error_body(error.message))
        self.connection.shutdown(socket.SHUT_WR)
        # Hanging up on a client that still sends would reset the connection and lose the answer.
        end = time.monotonic() + _UPLOAD_GRACE
        while time.monotonic() < end and self.rfile.read1(2**16):
            pass
