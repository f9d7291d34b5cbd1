"""What the stand-in does beyond the REST API: versions that come, clients that misbehave, merging, draining."""

import gzip
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tfbnood.serving import ServingError
from tfbnood.serving.standin import servables as models
from tfbnood.serving.standin.config import ModelConfig, models_from
from tfbnood.serving.standin.server import Server

PREDICT = "/v1/models/factor:predict"
ONE = b'{"instances": [1]}'


@pytest.fixture
def local(stand_in, api_of):
    return api_of(stand_in)


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def raw(api, sent):
    """A connection on which some bytes have been sent."""
    host, port = api.address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(sent)
    return connection


# Starting.


def test_a_port_that_is_taken_is_one_clear_error(folder, stand_in):
    port = int(stand_in.rpartition(":")[2])
    with pytest.raises(ServingError, match=f"cannot listen on 127.0.0.1:{port}"):
        Server(models_from(folder), port=port).start()


def test_a_model_that_cannot_be_loaded_at_the_start_is_an_error(tmp_path):
    version = tmp_path / "broken" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"not a model")
    with pytest.raises(ServingError, match="version 1 of broken cannot be loaded"):
        Server(models_from(tmp_path), port=0).start()


def test_the_start_says_that_it_is_for_development(folder, capsys):
    with Server(models_from(folder / "factor"), port=0) as server:
        assert server.port != 0
        assert server.url == f"http://127.0.0.1:{server.port}"
    said = capsys.readouterr().err
    assert "serves factor version 3\n" in said
    assert f"listens at {server.url}: for development, not for production" in said


# Versions.


def test_only_integers_with_a_saved_model_are_versions(factor_base, api_of):
    base, _ = factor_base
    (base / "9").mkdir()
    shutil.copytree(base / "1", base / "latest")
    shutil.copytree(base / "1", base / "-2")
    with Server(models_from(base), port=0) as server:
        answer = api_of(server.url).get("/v1/models/factor")[1]
    assert [each["version"] for each in answer["model_version_status"]] == ["1"]


def test_a_new_version_takes_over_under_load_without_one_failed_request(factor_base, api_of):
    base, add = factor_base
    rows = {"instances": [1, 2, 3]}
    answers, failures, stop = [], [], threading.Event()

    def client(api):
        while not stop.is_set():
            try:
                code, answer = api.predict(rows, model="factor")
                if code == 200:
                    answers.append(tuple(answer["predictions"]))
                else:
                    failures.append((code, answer))
            except Exception as error:
                failures.append(error)
            time.sleep(0.002)

    with Server(models_from(base), port=0) as server, ThreadPoolExecutor(4) as pool:
        api = api_of(server.url)
        try:
            for _ in range(4):
                pool.submit(client, api)
            wait_until(lambda: len(answers) > 20)
            add(2)
            wait_until(lambda: answers[-1] == (2.0, 4.0, 6.0))
            add(3)
            wait_until(lambda: answers[-1] == (3.0, 6.0, 9.0))
        finally:
            stop.set()
        status = api.get("/v1/models/factor")[1]["model_version_status"]
    assert failures == []
    # No answer mixes versions.
    assert set(answers) == {(1.0, 2.0, 3.0), (2.0, 4.0, 6.0), (3.0, 6.0, 9.0)}
    assert [(each["version"], each["state"]) for each in status] == [
        ("3", "AVAILABLE"),
        ("2", "END"),
        ("1", "END"),
    ]


def test_a_bad_new_version_is_said_once_and_the_old_one_stays(factor_base, folder, api_of, capsys):
    base, _ = factor_base
    with Server(models_from(base), port=0) as server:
        api = api_of(server.url)
        (base / "2").mkdir()
        (base / "2" / "saved_model.pb").write_bytes(b"half of a model")
        said = ""

        def tell():
            nonlocal said
            said += capsys.readouterr().err
            return said

        wait_until(lambda: "cannot be loaded" in tell())
        time.sleep(1.3)  # it is looked at again, and not said again
        assert tell().count("cannot be loaded") == 1
        assert api.predict({"instances": [1]}, model="factor") == (200, {"predictions": [1.0]})
        newest = api.get("/v1/models/factor/versions/2")[1]["model_version_status"][0]
        assert newest["state"] == "END"
        assert newest["status"]["error_code"] != "OK"
        # The rest of the files arrives, and the version is tried again.
        shutil.copytree(folder / "factor" / "2", base / "2", dirs_exist_ok=True)
        wait_until(
            lambda: api.predict({"instances": [1]}, model="factor")[1] == {"predictions": [2.0]}
        )


def test_a_request_in_flight_finishes_on_the_old_version(folder, config):
    model = models.Model(models_from(folder / "factor")[0])
    model.config = ModelConfig("factor", folder / "factor", versions=frozenset({1}))
    model.refresh()
    old = model.find()
    model.config = ModelConfig("factor", folder / "factor", versions=frozenset({2}))
    model.refresh()
    x = {"x": np.ones(1, np.float32)}
    assert model.find().run("serving_default", x)["y"] == [2.0]
    assert old.run("serving_default", x)["y"] == [1.0]


# Clients that misbehave.


def test_a_client_that_sends_half_a_request_does_not_block_others(local):
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(ONE)}\r\n\r\n".encode()
    halves = [head[:10], head[:-2], head, head + ONE[:5]] * 8
    connections = [raw(local, half) for half in halves]
    try:
        began = time.monotonic()
        for _ in range(10):
            assert local.predict({"instances": [1]}, model="factor")[0] == 200
        assert time.monotonic() - began < 5
        connections[3].sendall(ONE[5:])  # late, not lost
        assert connections[3].recv(100).startswith(b"HTTP/1.1 200")
    finally:
        for connection in connections:
            connection.close()


def test_clients_that_break_off_leave_the_server_alive(local):
    whole = f"POST {PREDICT} HTTP/1.1\r\nContent-Length: {len(ONE)}\r\n\r\n".encode() + ONE
    for sent in (b"", b"\r\n", b"\x00\xff" * 50, b"GET\r\n\r\n", whole[:-3], whole):
        connection = raw(local, sent)
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
        with raw(api, expecting) as connection:
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
    with raw(local, f"POST {PREDICT} HTTP/1.1\r\n{lines}\r\n".encode() + body) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_a_version_number_beyond_64_bits_is_refused(local):
    code, answer = local.predict({"instances": [1]}, model=f"factor/versions/{2**63}")
    assert (code, answer["error"]) == (400, f"Failed to convert version: {2**63} to numeric.")


def test_classify_is_not_implemented(local):
    assert local.ask("POST", "/v1/models/contract:classify", b"{}")[0] == 501


# Many clients, and merging.


@pytest.mark.parametrize("merge", [False, True])
def test_each_of_many_clients_gets_its_own_rows(folder, api_of, monkeypatch, merge):
    calls = []
    run = models.Servable.run

    def counted(self, signature, arrays):
        calls.append(signature)
        return run(self, signature, arrays)

    rng = np.random.default_rng(0)
    requests = [rng.integers(0, 256, (1 + i % 5, 2, 2, 1)) for i in range(64)]
    with Server(models_from(folder / "contract"), port=0, merge=merge) as server:
        api = api_of(server.url)
        monkeypatch.setattr(models.Servable, "run", counted)
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda x: api.predict({"instances": x.tolist()}), requests))
    for images, (code, answer) in zip(requests, answers, strict=True):
        assert code == 200
        scores = [row["score"] for row in answer["predictions"]]
        assert scores == images.sum(axis=(1, 2, 3)).tolist()
    assert len(calls) < 64 if merge else len(calls) == 64


def test_merging_asks_for_rows_in_and_rows_out(folder, api_of):
    with Server(models_from(folder / "contract"), port=0, merge=True) as server:
        api = api_of(server.url)
        for body, signature, said in [
            ({"inputs": 1}, "one", "must have at least one dimension"),
            ({"inputs": {"a": [1, 2], "b": [1]}}, "two", "must have equal 0th-dimension size"),
            ({"inputs": [1]}, "scalar", "Batched output tensor has 0 dimensions"),
            ({"inputs": [1]}, "other", "0th dimension does not equal the sum"),
        ]:
            code, answer = api.predict(body, signature)
            assert code == 400
            assert said in answer["error"]
        # Rows of other shapes are not merged with these, and what the graph refuses is answered.
        assert api.predict({"instances": [[5]]})[0] == 400
        assert api.predict({"instances": [[5]]}, "loose")[0] == 200


# Closing.


def test_closing_finishes_what_is_in_flight_and_then_refuses(folder, api_of):
    server = Server(models_from(folder / "contract"), port=0).start()
    api = api_of(server.url)
    idle = raw(api, b"")
    half = raw(api, b"POST /v1/models/contract:predict HTTP/1.1\r\n")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(api.predict, {"instances": [200_000]}, "slow")
        time.sleep(0.1)
        assert not slow.done()
        server.close()
        assert slow.result() == (200, {"predictions": [200_000]})
    with pytest.raises(ConnectionRefusedError):
        api.get("/v1/models/contract")
    assert idle.recv(10) == b""
    while half.recv(1000):  # whatever is said to half a request, it ends
        pass
    idle.close()
    half.close()
    server.close()  # again is no error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_drain_and_end_the_server(folder, api_of, number):
    server = Server(models_from(folder / "contract"), port=0)
    before = signal.getsignal(number)

    def ask_and_stop():
        wait_until(lambda: server.port != 0)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(api_of(server.url).predict, {"instances": [50_000]}, "slow")
            time.sleep(0.1)
            os.kill(os.getpid(), number)
            return slow.result()

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask_and_stop)
        server.serve_forever()
        assert asked.result() == (200, {"predictions": [50_000]})
    assert signal.getsignal(number) == before
