"""What the stand-in does beyond the REST API: versions that come, clients that misbehave, merging, draining."""

import json
import os
import shutil
import signal
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


def wait_until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


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
    lines = [
        "loading factor version 3 …",
        "loaded factor version 3",
        f"serving factor at {server.url}/v1/models/factor",
        f"listening at {server.url}: for development, not for production",
    ]
    places = [said.index(f"tfbnood serve: {line}") for line in lines]
    assert places == sorted(places)
    assert "TensorFlow Serving 2." in said  # whose rules it follows
    assert "loaded factor version 3\n" in said
    assert f"listening at {server.url}: for development, not for production" in said


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

        def states():
            status = api.get("/v1/models/factor")[1]["model_version_status"]
            return [(each["version"], each["state"]) for each in status]

        # Not at once: a version answers a moment before the one it replaces has ended.
        wait_until(lambda: states() == [("3", "AVAILABLE"), ("2", "END"), ("1", "END")])
    assert failures == []
    # No answer mixes versions.
    assert set(answers) == {(1.0, 2.0, 3.0), (2.0, 4.0, 6.0), (3.0, 6.0, 9.0)}


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


def test_a_version_number_beyond_64_bits_is_refused(local):
    code, answer = local.predict({"instances": [1]}, model=f"factor/versions/{2**63}")
    assert (code, answer["error"]) == (400, f"Failed to convert version: {2**63} to numeric.")


def test_a_signature_made_for_regression_is_not_implemented(local):
    body = json.dumps({"examples": [{"a": 1}], "signature_name": "regression"}).encode()
    assert local.ask("POST", "/v1/models/contract:regress", body)[0] == 501


def test_a_request_with_too_many_rows_is_refused(factor_base, api_of):
    base, _ = factor_base
    with Server(models_from(base), port=0, max_rows=10) as server:
        api = api_of(server.url)
        for key in ("instances", "inputs"):
            code, answer = api.predict({key: [1] * 11}, model="factor")
            assert (code, answer["error"]) == (
                400,
                "A request may have at most 10 rows (max_rows): send several. Received: 11",
            )
            assert api.predict({key: [1] * 10}, model="factor")[0] == 200


def test_the_rows_of_a_request_are_bounded_by_default(local):
    assert local.predict({"instances": [1] * 10_001}, "one")[0] == 400
    assert local.predict({"instances": [1] * 10_000}, "one")[0] == 200


@pytest.mark.parametrize(
    "option",
    ["max_batch_size", "max_rows", "max_body", "max_connections", "request_seconds"],
)
def test_limits_must_be_positive(folder, option):
    with pytest.raises(ServingError, match=f"{option} must be positive. Received: 0"):
        Server(models_from(folder), port=0, **{option: 0})


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


def test_merging_refuses_what_no_batch_can_hold(folder, api_of):
    options = {"merge": True, "max_batch_size": 4, "batch_timeout_micros": 0}
    with Server(models_from(folder / "contract"), port=0, **options) as server:
        api = api_of(server.url)
        assert api.predict({"instances": [1] * 4}, "one")[0] == 200
        assert api.predict({"instances": [1] * 5}, "one") == (
            400,
            {"error": "Task size 5 is larger than maximum input batch size 4"},
        )
    with pytest.raises(ServingError, match="batch_timeout_micros must not be negative"):
        Server(models_from(folder), merge=True, batch_timeout_micros=-1)


def test_a_merged_call_never_has_more_rows_than_allowed_and_waits_as_told(
    folder, api_of, monkeypatch
):
    sizes = []
    run = models.Servable.run

    def counted(self, signature, arrays):
        sizes.append(len(arrays["x"]))
        return run(self, signature, arrays)

    # A minute is long enough to fill every batch: without the rows of others nobody would be answered in time.
    options = {"merge": True, "max_batch_size": 6, "batch_timeout_micros": 60_000_000}
    with Server(models_from(folder / "contract"), port=0, **options) as server:
        api = api_of(server.url)
        monkeypatch.setattr(models.Servable, "run", counted)
        with ThreadPoolExecutor(6) as pool:
            body = {"instances": [1, 2]}
            answers = list(pool.map(lambda _: api.predict(body, "one"), range(6)))
    assert answers == [(200, {"predictions": [2.0, 4.0]})] * 6
    assert sizes == [6, 6]


# Closing.


@pytest.fixture
def arrived(monkeypatch):
    """Set once the model of a server is asked."""
    asked, run = threading.Event(), models.Servable.run

    def noticed(self, signature, arrays):
        if signature == "slow" and arrays["steps"][0] > 1:  # not to warm up
            asked.set()
        return run(self, signature, arrays)

    monkeypatch.setattr(models.Servable, "run", noticed)
    return asked


def test_closing_finishes_what_is_in_flight_and_then_refuses(folder, api_of, arrived):
    server = Server(models_from(folder / "contract"), port=0).start()
    api = api_of(server.url)
    idle = api.connect(b"")
    half = api.connect(b"POST /v1/models/contract:predict HTTP/1.1\r\n")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(api.predict, {"instances": [200_000]}, "slow")
        assert arrived.wait(60)
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
def test_signals_drain_and_end_the_server(folder, api_of, arrived, number):
    server = Server(models_from(folder / "contract"), port=0)
    before = signal.getsignal(number)

    def ask_and_stop():
        wait_until(lambda: server.port != 0)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(api_of(server.url).predict, {"instances": [200_000]}, "slow")
            arrived.wait(60)
            time.sleep(0.3)  # by now the server waits for signals
            os.kill(os.getpid(), number)
            return slow.result()

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask_and_stop)
        server.serve_forever()
        assert asked.result() == (200, {"predictions": [200_000]})
    assert signal.getsignal(number) == before
