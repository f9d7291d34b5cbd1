"""A real detector, exported and served over HTTP: the same scores by every way, under load, while versions change."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

from tfbnood.cli import main
from tfbnood.serving import Client, Server, models_from

FIELDS = ("score", "p_value", "is_ood", "bits_per_dim", "valid")


@pytest.fixture(scope="module")
def base(detector, digits, tmp_path_factory):
    base = tmp_path_factory.mktemp("served") / "digits"
    detector.export(base, fpr=0.05, held_out=digits.calibration)
    return base


@pytest.fixture(scope="module", params=[False, True], ids=["apart", "merged"])
def server(request, base):
    with Server(models_from(base), port=0, merge=request.param) as server:
        yield server


def predict(url, body):
    request = urllib.request.Request(
        f"{url}/v1/models/digits:predict", json.dumps(body).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def png(image):
    return tf.io.encode_png(image).numpy()


def test_row_columnar_encoded_and_in_process_scores_are_one(server, detector, digits):
    images = np.concatenate([digits.test[:6], 255 - digits.test[6:9]])
    expected = detector.score(images)
    rows = predict(server.url, {"instances": images.tolist()})["predictions"]
    columns = predict(server.url, {"inputs": images.tolist()})["outputs"]
    files = [{"b64": base64.b64encode(png(image)).decode()} for image in images]
    encoded = predict(server.url, {"signature_name": "encoded", "instances": files})["predictions"]
    np.testing.assert_allclose([row["score"] for row in rows], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(columns["score"], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([row["score"] for row in encoded], expected, rtol=1e-4, atol=1e-4)
    assert set(rows[0]) == set(columns) == set(encoded[0]) == set(FIELDS)


def test_the_client_chunks_and_agrees_with_the_detector(server, detector, digits, tmp_path):
    client = Client(server.url, "digits")
    images = digits.test[:130]
    expected = detector.predict(images, fpr=0.05)
    found = client.score(images)
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found.is_ood, found.p_value <= 0.05)
    paths = [tmp_path / f"{index}.png" for index in range(3)]
    for path, image in zip(paths, images, strict=False):
        path.write_bytes(png(image))
    np.testing.assert_allclose(
        client.score_files(paths).score, expected.score[:3], rtol=1e-4, atol=1e-4
    )
    assert "serving_default" in json.dumps(client.metadata())


def test_one_client_s_nan_does_not_hurt_another(server, digits):
    images = digits.test[:4].astype(float)
    alone = Client(server.url, "digits").score(images)
    spoiled = images.tolist()
    spoiled[2][3][3][0] = float("nan")
    stop, failures = threading.Event(), []

    def send_nan():
        while not stop.is_set():
            valid = predict(server.url, {"inputs": spoiled})["outputs"]["valid"]
            if valid != [True, True, False, True]:
                failures.append(valid)

    threads = [threading.Thread(target=send_nan) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            found = Client(server.url, "digits").score(images)
            for field in FIELDS:
                np.testing.assert_allclose(
                    getattr(found, field), getattr(alone, field), rtol=1e-4, atol=1e-4
                )
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_sixteen_clients_for_thirty_seconds_without_an_error(base, detector, digits):
    images = digits.test[:48]
    expected = detector.score(images)
    failures, answers = [], []
    end = time.monotonic() + 30

    def ask(offset):
        client = Client(server.url, "digits", retries=0)
        index = offset
        while time.monotonic() < end:
            index = (index + 7) % 40
            try:
                found = client.score(images[index : index + 1 + offset % 8])
                np.testing.assert_allclose(
                    found.score, expected[index : index + len(found)], rtol=1e-4, atol=1e-4
                )
                answers.append(1)
            except Exception as error:
                failures.append(error)
            time.sleep(
                0.02
            )  # Clients think; the test is of many at once, not of the machine's limit.

    with Server(models_from(base), port=0) as server:
        threads = [threading.Thread(target=ask, args=(index,)) for index in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(answers) > 200


def test_a_killed_export_is_not_served_and_a_finished_one_is(detector, digits, base, tmp_path):
    own = tmp_path / "digits"
    shutil.copytree(base, own)
    detector.save(tmp_path / "detector")
    code = (
        "import os, brought, tfbnood\n"
        "from tfbnood.export import write as module\n"
        "module._write_extras = lambda *_: os.kill(os.getpid(), 9)\n"
        "tfbnood.Detector.load(os.environ['DETECTOR']).export(os.environ['BASE'])\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(pathlib.Path(__file__).parents[1]),
        "BASE": str(own),
        "DETECTOR": str(tmp_path / "detector"),
    }
    with Server(models_from(own), port=0) as server:
        client = Client(server.url, "digits", retries=0)
        before = client.score(digits.test[:2]).score
        assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == -9
        time.sleep(2.5)  # two looks of the server at the folder
        versions = [one["version"] for one in client.status()["model_version_status"]]
        assert versions == ["1"]
        np.testing.assert_array_equal(client.score(digits.test[:2]).score, before)
        # A finished one is switched to while requests go on.
        failures, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                try:
                    client.score(digits.test[:2])
                except Exception as error:
                    failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        detector.export(own, fpr=0.1)
        for _ in range(100):
            states = client.status()["model_version_status"]
            if any((one["version"], one["state"]) == ("2", "AVAILABLE") for one in states):
                break
            time.sleep(0.2)
        stop.set()
        thread.join()
        assert not failures
        assert any(one["version"] == "2" for one in client.status()["model_version_status"])


def test_the_shell_scores_by_a_server(base, digits, tmp_path, capsys):
    folder = tmp_path / "images"
    folder.mkdir()
    for index in range(3):
        (folder / f"{index}.png").write_bytes(png(digits.test[index]))
    (folder / "3.png").write_bytes(png(255 - digits.test[3]))
    (folder / "4.png").write_bytes(b"no image")
    np.save(tmp_path / "images.npy", digits.test[:5])
    with Server(models_from(base), port=0) as server:
        assert main(["score", "digits", str(folder), "--url", server.url]) == 0
        out = capsys.readouterr().out
        assert "3.png" in out
        assert "not a valid image" in out
        line = ["score", "digits", str(tmp_path / "images.npy"), "--url", server.url, "--json"]
        assert main(line) == 0
        assert json.loads(capsys.readouterr().out)["of"] == 5
        assert main([*line, "--fpr", "0.1"]) == 2
        assert "cannot be combined with --url" in capsys.readouterr().err


def test_export_and_serve_from_the_shell(detector, digits, tmp_path, capfd):
    detector.save(tmp_path / "detector")
    out = tmp_path / "models" / "digits"
    assert main(["export", str(tmp_path / "detector"), "--out", str(out), "--fpr", "0.05"]) == 0
    printed = capfd.readouterr()
    assert f"exported: {out / '1'}" in printed.out
    assert "score_batch is left out" in printed.err  # this detector does not say its data
    line = ["export", str(tmp_path / "detector"), "--out", str(out), "--data", "digits"]
    assert main(line) == 0
    assert "score_batch" in tf.saved_model.load(str(out / "2")).signatures
    command = [
        sys.executable,
        "-m",
        "tfbnood",
        "serve",
        str(out.parent),
        "--stand-in",
        "--port",
        "0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        text = ""
        while "listening at http://127.0.0.1:" not in text:
            line = process.stderr.readline()
            assert line, text
            text += line
        assert "development" in text
        time.sleep(0.5)  # by now it waits for signals
    finally:
        process.send_signal(2)
        assert process.wait(60) == 0
        process.stderr.close()
