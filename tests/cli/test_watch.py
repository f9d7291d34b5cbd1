"""`tfbnood watch` as a user types it: a folder, standard input, a served model; tests/watch has the parts."""

import base64
import contextlib
import http.client
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse

import numpy as np
import pytest
from faults import fill, mounted
from PIL import Image

from tfbnood import Detector


def lines_of(out):
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def test_a_folder_is_scored_as_tfbnood_score_does_and_resumes(run, folder, tmp_path):
    out, images = tmp_path / "out", tmp_path / "images"
    shutil.copytree(folder / "images", images)
    (images / "broken.png").write_bytes(b"no image")
    past = time.time() - 60
    for path in images.rglob("*.png"):
        os.utime(path, (past, past))
    code, said, err = run("watch", folder / "detector", images, "--out", out, "--once")
    assert (code, err) == (0, "")
    assert said.splitlines()[-1].startswith("ended: 32 images, 1 unreadable, ")
    found = {one["key"]: one for one in lines_of(out)}
    assert "not an image" in found["broken.png"]["unreadable"]
    code, listed, _ = run("score", folder / "detector", folder / "images", "--json")
    assert code == 0
    for row in json.loads(listed)["images"]:
        assert found[row["image"]]["p_value"] == pytest.approx(row["p_value"], abs=1e-12)
        assert found[row["image"]]["score"] == pytest.approx(row["score"], rel=1e-5)
    # Again: nothing is new.
    shutil.copy(images / "05.png", images / "new.png")
    os.utime(images / "new.png", (past + 1, past + 1))
    code, said, _ = run("watch", folder / "detector", images, "--out", out, "--once")
    assert code == 0
    assert said.splitlines()[0].startswith("resumed: 32 images, 1 unreadable")
    assert [one["key"] for one in lines_of(out)][33:] == ["new.png"]


def test_an_alarm_ends_with_exit_code_3_and_is_taken_back(run, folder, digits, tmp_path):
    images, out = tmp_path / "images", tmp_path / "out"
    images.mkdir()
    for row in range(70):
        path = images / f"{row:02d}.png"
        Image.fromarray(255 - digits.test[row, ..., 0]).save(path)
        os.utime(path, (1000 + row, 1000 + row))
    line = ["watch", folder / "detector", images, "--out", out, "--once", "--until-alarm"]
    code, said, err = run(*line)
    assert (code, err) == (3, "")
    assert re.search(r"^ALARM at .*, image \d+ \(\d+\.png\)\.$", said, re.M)
    assert "Images have been unusual since image 0, " in said
    assert "an alarm comes at most once in 10,000 images on average." in said
    code, said, _ = run(*line)  # still on
    assert code == 3
    assert "ALARM at" in said
    code, said, _ = run(*line, "--restart", "--forget")
    assert code == 0
    assert "--restart: the alarm was cleared" in said
    assert "no alarm" in said.splitlines()[-1]
    code, said, _ = run(*line, "--restart")
    assert "--restart: the alarm is already off; nothing was changed" in said


def test_paths_and_scores_on_standard_input(run, folder, tmp_path, monkeypatch):
    names = [str(path) for path in sorted((folder / "images").rglob("*.png"))]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(names)))
    code, _, err = run("watch", folder / "detector", "-", "--out", tmp_path / "paths")
    assert (code, err) == (0, "")
    scored = lines_of(tmp_path / "paths")
    assert [one["key"] for one in scored] == names
    text = "\n".join(json.dumps({"key": one["key"], "score": one["score"]}) for one in scored)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    line = ["watch", folder / "detector", "-", "--scores", "--out", tmp_path / "scores"]
    code, _, err = run(*line)
    assert (code, err) == (0, "")
    kept = ("index", "score", "p_value", "stream_p_value", "log_evidence", "alarm")
    again = lines_of(tmp_path / "scores")
    assert [[one[name] for name in kept] for one in again] == [
        [one[name] for name in kept] for one in scored
    ]


def test_a_full_disk_is_one_line_and_the_same_line_resumes(run, folder, tmp_path, monkeypatch):
    numbers = [f'{{"key": "{row}", "score": {row % 7}}}' for row in range(3000)]
    with mounted(tmp_path / "disk", "size=1500k") as disk:
        line = ["watch", folder / "detector", "-", "--scores", "--thin", "1", "--out", disk / "out"]
        fill(disk, leave=200_000)
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(numbers)))
        code, _, err = run(*line)
        assert code == 2
        (error,) = err.splitlines()
        assert error.endswith("cannot be written (No space left on device)")
        (disk / "filling").unlink()
        assert 100 < len(lines_of(disk / "out")) < 3000
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(numbers)))
        assert run(*line)[0] == 0
        assert [one["key"] for one in lines_of(disk / "out")] == [str(row) for row in range(3000)]


@pytest.fixture(scope="module")
def served(folder, digits, tmp_path_factory):
    """The detector, exported and behind the stand-in; with its own folder in the model base."""
    from tfbnood.serving import Server, models_from

    base = tmp_path_factory.mktemp("served") / "digits"
    Detector.load(folder / "detector").export(base, fpr=0.05)
    shutil.copytree(folder / "detector", base / "detector")
    within = Detector(None, "pixel_pca", reference=digits.train)
    within.calibrate(digits.calibration, clusters=3)
    within.export(base.parent / "within", fpr=0.05)
    within.save(base.parent / "within" / "detector")
    with Server(models_from(base.parent), port=0) as server:
        yield base, server


def ask(address, method, path, body):
    connection = http.client.HTTPConnection(address, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        response = connection.getresponse()
        headers = sorted(one for one in response.headers.items() if one[0] != "Date")
        return response.status, response.reason, headers, response.read()


def test_a_served_model_is_watched_without_changing_a_byte(served, digits, tmp_path):
    base, server = served
    out = tmp_path / "out"
    url = f"{server.url}/v1/models/digits"
    words = ["watch", str(base), "--url", url, "--port", "0", "--out", str(out)]
    with (tmp_path / "imports").open("w") as imports:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "tfbnood", *words],
            stdout=subprocess.PIPE,
            stderr=imports,
            text=True,
        )
    said = process.stdout.readline()
    here = urllib.parse.urlsplit(said.split(" at ")[1].split()[0]).netloc
    there = urllib.parse.urlsplit(server.url).netloc
    png = io.BytesIO()
    Image.fromarray(digits.test[7, ..., 0]).save(png, "PNG")
    files = [{"b64": base64.b64encode(one).decode()} for one in (png.getvalue(), b"broken")]
    predict = "/v1/models/digits:predict"
    cases = [
        ("POST", predict, {"instances": digits.test[:3].tolist()}),
        ("POST", predict, {"inputs": digits.test[3:7].tolist()}),
        (
            "POST",
            "/v1/models/digits/versions/1:predict",
            {"instances": [{"images": digits.test[7].tolist()}]},
        ),
        (
            "POST",
            predict,
            {"signature_name": "uint8", "inputs": {"images": digits.test[8:9].tolist()}},
        ),
        (
            "POST",
            predict,
            {"signature_name": "encoded", "instances": [{"image_bytes": one} for one in files]},
        ),
        (
            "POST",
            predict,
            {"instances": (np.tile(digits.test[:200], (10, 1, 1, 1)) * 1.0).tolist()},
        ),
        ("POST", predict, {"instances": [[5]]}),
        ("POST", predict, {"instances": []}),
        ("POST", predict, None),
        ("POST", "/v1/models/other:predict", {"instances": [1]}),
        ("POST", "/v1/models/digits:regress", {"examples": []}),
        ("GET", "/v1/models/digits", None),
        ("GET", "/v1/models/digits/metadata", None),
        ("GET", "/elsewhere", None),
        ("HEAD", "/v1/models/digits", None),
    ]
    direct = []
    try:
        for method, path, content in cases:
            body = b"{nonsense" if content is None and method == "POST" else json.dumps(content)
            body = None if method != "POST" else body
            direct.append(ask(there, method, path, body))
            assert ask(here, method, path, body) == direct[-1], (method, path)
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [one[0] for one in direct][6:11] == [400, 400, 400, 404, 400]
    found = lines_of(out)
    p_values = []
    for _, _, _, body in direct[:6]:
        answer = json.loads(body)
        rows = answer.get("predictions")
        if rows is None:
            rows = [
                dict(zip(answer["outputs"], one, strict=True))
                for one in zip(*answer["outputs"].values(), strict=True)
            ]
        p_values += [row["p_value"] for row in rows if row["valid"]]
    counted = [one["p_value"] for one in found if "p_value" in one]
    assert len(counted) == 2010
    np.testing.assert_array_equal(np.float32(counted), np.float32(p_values))
    assert [one["unreadable"] for one in found if "unreadable" in one] == [
        "not a valid image, according to the server"
    ]
    assert "ended: 2,010 images, 1 unreadable" in rest
    # The worst ones are on the page, although no file was ever here.
    page = (out / "timeline.html").read_text()
    assert page.count("<img alt=") == 16
    imported = (tmp_path / "imports").read_text()
    assert "numpy" in imported
    assert not re.search(r"\| +(tensorflow|keras|sklearn|matplotlib)$", imported, re.M)


def test_a_detector_within_clusters_is_watched_within_them(run, served, folder, digits, tmp_path):
    base, server = served
    within = base.parent / "within"
    code, _, _ = run("watch", within, folder / "images", "--out", tmp_path / "files", "--once")
    assert code == 0
    found = {one["key"]: one for one in lines_of(tmp_path / "files")}
    expected = Detector.load(within / "detector").predict(digits.test[:30])
    rows = [found[f"{row:02d}.png"] for row in range(30)]
    assert [one["group"] for one in rows] == expected.cluster.tolist()
    assert len({one["group"] for one in rows}) > 1
    np.testing.assert_allclose([one["p_value"] for one in rows], expected.p_value)
    # The same by a server: its answers name the cluster.
    words = ["watch", str(within), "--url", f"{server.url}/v1/models/within", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfbnood", *words, "--out", str(tmp_path / "answers")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        here = urllib.parse.urlsplit(process.stdout.readline().split(" at ")[1].split()[0]).netloc
        body = json.dumps({"instances": digits.test[:30].tolist()})
        assert ask(here, "POST", "/v1/models/within:predict", body)[0] == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    served_rows = lines_of(tmp_path / "answers")
    assert [one["group"] for one in served_rows] == expected.cluster.tolist()
    np.testing.assert_allclose([one["p_value"] for one in served_rows], expected.p_value, atol=1e-6)


def test_an_export_alone_is_refused(run, served, tmp_path):
    base, _ = served
    (tmp_path / "images").mkdir()
    shutil.copytree(base / "1", tmp_path / "base" / "1")
    code, _, err = run("watch", tmp_path / "base", tmp_path / "images", "--out", tmp_path / "out")
    assert code == 2
    (error,) = err.splitlines()
    assert (
        "WHAT must hold the detector itself: an exported version has no list of held-out scores"
        in error
    )
    assert not (tmp_path / "out").exists()


def test_a_shipped_detector_by_its_name(run, folder, tmp_path):
    line = ["watch", "digits_realnvp", folder / "images", "--out", tmp_path / "out", "--once"]
    code, said, _ = run(*line, "--run-length", "50")
    assert code == 0
    found = {one["key"]: one["p_value"] for one in lines_of(tmp_path / "out")}
    assert len(found) == 32
    assert max(found["white/30.png"], found["white/31.png"]) <= min(found.values()) + 1e-12
    assert "loading digits_realnvp" in said
