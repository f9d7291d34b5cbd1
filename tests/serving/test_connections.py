"""Clients that misbehave: half requests, slow ones, too large ones, and connections that nobody uses."""

import gzip
import http.client
import json
import socket
import struct
import time

import pytest

from tfbnood.serving.standin import servables as models
from tfbnood.serving.standin.config import models_from
from tfbnood.serving.standin.server import Server

PREDICT = "/v1/models/factor:predict"
ONE = b'{"instances": [1]}'
HEAD = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(ONE)}\r\n\r\n".encode()


@pytest.fixture
def local(stand_in, api_of):
    return api_of(stand_in)


def ended(connection):
    """All that the server still sends, or None where it leaves the connection open."""
    connection.setblocking(False)
    content = b""
    try:
        while more := connection.recv(65536):
            content += more
        return content
    except BlockingIOError:
        return None
    except ConnectionError:
        return content


def states(server):
    """Of the connections that the server has accepted."""
    return [about.state for about in list(server._http._connections.values())]


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_a_client_that_sends_half_a_request_does_not_block_others(local):
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(ONE)}\r\n\r\n".encode()
    halves = [head[:10], head[:-2], head, head + ONE[:5]] * 8
    connections = [local.connect(half) for half in halves]
    try:
        began = time.monotonic()
        for _ in range(10):
            assert local.predict({"instances": [1]}, model="factor")[0] == 200
        assert time.monotonic() - began < 20  # a blocked request would wait for 30 s
        connections[3].sendall(ONE[5:])  # late, not lost
        assert connections[3].recv(100).startswith(b"HTTP/1.1 200")
    finally:
        for connection in connections:
            connection.close()


def test_clients_that_break_off_leave_the_server_alive(local):
    whole = f"POST {PREDICT} HTTP/1.1\r\nContent-Length: {len(ONE)}\r\n\r\n".encode() + ONE
    for sent in (b"", b"\r\n", b"\x00\xff" * 50, b"GET\r\n\r\n", whole[:-3], whole):
        connection = local.connect(sent)
        # Closes with a reset rather than an orderly end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert local.predict({"instances": [1]}, model="factor")[0] == 200


def test_one_connection_carries_many_requests(local):
    connection = http.client.HTTPConnection(local.address, timeout=30)
    try:
        for body in (ONE, b"bad", ONE):
            connection.request("POST", PREDICT, body)
            response = connection.getresponse()
            assert response.status == (400 if body == b"bad" else 200)
            response.read()
    finally:
        connection.close()


def test_a_body_that_is_too_large_is_refused_with_413(factor_base, api_of):
    base, _ = factor_base
    with Server(models_from(base), port=0, max_body=1000) as server:
        api = api_of(server.url)
        large = b" " * 3_000_000 + ONE
        pieces = (large[i : i + 500] for i in range(0, 5000, 500))
        for body, headers in [
            (large, {}),
            (pieces, {}),  # goes in chunks
            (gzip.compress(large), {"Content-Encoding": "gzip"}),
        ]:
            code, content, _ = api.ask("POST", PREDICT, body, headers)
            assert code == 413
            assert json.loads(content)["error"].startswith("The body must have at most 1000 bytes")
        assert api.ask("POST", PREDICT, ONE.ljust(1000))[0] == 200
        expecting = b"POST / HTTP/1.1\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"
        with api.connect(expecting) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_bodies_may_come_in_chunks_or_compressed(local):
    for body, headers in [
        (iter([ONE[:4], ONE[4:]]), {}),  # goes in chunks
        (gzip.compress(ONE), {"Content-Encoding": "gzip"}),
    ]:
        code, content, _ = local.ask("POST", PREDICT, body, headers)
        assert (code, json.loads(content)) == (200, {"predictions": [2.0]})


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Length": "many"}, b""),
        ({"Content-Length": "-1"}, b""),
        ({"Transfer-Encoding": "chunked"}, b"zz\r\n"),
        ({"Transfer-Encoding": "chunked"}, b"-5\r\n"),
        ({"Content-Encoding": "gzip", "Content-Length": "3"}, b"abc"),
    ],
)
def test_bodies_that_cannot_be_read_are_malformed(local, headers, body):
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with local.connect(f"POST {PREDICT} HTTP/1.1\r\n{lines}\r\n".encode() + body) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("start", [b"", HEAD[:-2], HEAD], ids=["line", "head", "body"])
def test_fifty_clients_that_send_a_byte_at_a_time_are_ended(factor_base, api_of, start):
    base, _ = factor_base
    with Server(models_from(base), port=0, request_seconds=1) as server:
        api = api_of(server.url)
        # Before the first connection: the time of the last one cannot begin earlier.
        answers, began = {}, time.monotonic()
        connections = [api.connect(start) for _ in range(50)]
        try:
            while len(answers) < 50 and time.monotonic() < began + 60:
                for index, connection in enumerate(connections):
                    if index not in answers:
                        try:
                            connection.send(b"P" if not start else b"x")
                        except OSError:
                            answers[index] = b""
                        answers.update(
                            {index: said} if (said := ended(connection)) is not None else {}
                        )
                time.sleep(0.1)
            assert len(answers) == 50
            assert time.monotonic() - began > 0.8
            assert api.predict({"instances": [1]}, model="factor")[0] == 200
        finally:
            for connection in connections:
                connection.close()


def test_a_request_that_takes_too_long_is_answered_with_408(factor_base, api_of):
    base, _ = factor_base
    with Server(models_from(base), port=0, request_seconds=0.3) as server:
        for sent in (HEAD, HEAD + ONE[:-1], HEAD[:-2]):
            with api_of(server.url).connect(sent) as connection:
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                assert answer.status == 408
                assert json.load(answer)["error"] == "The request must arrive within 0.3 s."
                assert connection.recv(10) == b""


def test_the_time_for_a_request_is_not_that_of_the_connection(factor_base, api_of):
    base, _ = factor_base
    # A request must arrive within this time also on a busy machine.
    with Server(models_from(base), port=0, request_seconds=2) as server:
        connection = http.client.HTTPConnection(api_of(server.url).address, timeout=30)
        try:
            for _ in range(3):
                connection.request("POST", PREDICT, ONE)
                response = connection.getresponse()
                assert (response.status, json.load(response)) == (200, {"predictions": [1.0]})
                time.sleep(1.1)
        finally:
            connection.close()


def test_a_slow_answer_is_not_a_slow_request(folder, api_of, monkeypatch):
    run = models.Servable.run

    def slow(*arguments):
        time.sleep(3)
        return run(*arguments)

    with Server(models_from(folder / "contract"), port=0, request_seconds=2) as server:
        monkeypatch.setattr(models.Servable, "run", slow)
        answer = api_of(server.url).predict({"instances": [1]}, "one")
        assert answer == (200, {"predictions": [2.0]})


@pytest.mark.parametrize("sent", [b"", b"POST /v1", HEAD[:-2]], ids=["idle", "line", "head"])
def test_idle_connections_do_not_turn_a_new_client_away(factor_base, api_of, sent):
    base, _ = factor_base
    with Server(models_from(base), port=0, max_connections=20) as server:
        api = api_of(server.url)
        connections = [api.connect(sent) for _ in range(60)]
        try:
            for _ in range(3):
                assert api.predict({"instances": [1]}, model="factor")[0] == 200
            # The oldest have made room, the newest are still there.
            wait_until(
                lambda: all(ended(connection) is not None for connection in connections[:30])
            )
            assert ended(connections[-1]) is None
        finally:
            for connection in connections:
                connection.close()


def test_a_kept_connection_in_use_outlives_idle_ones(factor_base, api_of):
    base, _ = factor_base
    with Server(models_from(base), port=0, max_connections=5) as server:
        api = api_of(server.url)
        used = http.client.HTTPConnection(api.address, timeout=30)
        idle = []
        try:
            for _ in range(10):
                used.request("POST", PREDICT, ONE)
                used.getresponse().read()
                before = used.sock
                idle += [api.connect(b"") for _ in range(2)]
                # Clients are accepted in their order: with this answer, the server knows both.
                assert api.predict({"instances": [1]}, model="factor")[0] == 200
            used.request("POST", PREDICT, ONE)
            assert used.getresponse().status == 200
            assert used.sock is before  # never dropped
        finally:
            used.close()
            for connection in idle:
                connection.close()


def test_when_all_connections_are_busy_a_new_client_is_told_to_come_again(folder, api_of):
    with Server(models_from(folder / "contract"), port=0, max_connections=2) as server:
        api = api_of(server.url)
        head = b"POST /v1/models/contract:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n"
        busy = [api.connect(head + b"{") for _ in range(2)]
        try:
            wait_until(lambda: states(server) == ["reading"] * 2)
            with api.connect(b"") as refused:
                assert refused.recv(1000).startswith(b"HTTP/1.1 503")
            busy[0].close()
            wait_until(lambda: states(server) == ["reading"])
            assert api.predict({"instances": [1]}, "one")[0] == 200
        finally:
            for connection in busy:
                connection.close()
