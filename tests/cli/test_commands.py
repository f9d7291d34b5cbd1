"""`tfbnood calibrate`, `score` and `evaluate`, as typed."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tfbnood.cli import parser as cli
from tfbnood.training.run import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory, digits):
    """A run, a detector made of it, and images to score: 30 digits and 2 white squares."""
    folder = tmp_path_factory.mktemp("commands")
    train(digits, model="vae", preset="tiny", steps=1, out=folder / "run", progress=False)
    line = ["calibrate", str(folder / "run"), "--statistic", "pixel_pca", "--images", "200"]
    # In a process of its own, which has imported nothing yet.
    line = [sys.executable, "-m", "tfbnood.cli", *line, "--out", str(folder / "detector")]
    subprocess.run(line, check=True)
    images = np.concatenate([digits.test[:30], np.full((2, 8, 8, 1), 255, np.uint8)])
    (folder / "images" / "white").mkdir(parents=True)
    for index, image in enumerate(images):
        name = f"images/{'white/' if index >= 30 else ''}{index:02d}.png"
        (folder / name).write_bytes(tf.io.encode_png(image).numpy())
    np.savez(folder / "images.npz", images=images)
    np.save(folder / "images.npy", images)
    return folder


def run(capsys, *words):
    capsys.readouterr()
    code = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_score_lists_the_flagged_images_of_a_folder_worst_first(folder, capsys):
    code, out, _ = run(capsys, "score", folder / "detector", folder / "images", "--fpr", "0.01")
    assert code == 0
    header, first, second, *_, last = out.splitlines()
    assert header.split() == ["image", "score", "p-value", "bits/dim"]
    assert {first.split()[0], second.split()[0]} == {"white/30.png", "white/31.png"}
    assert "of 32 images out-of-distribution by pixel_pca (false-alarm rate 0.01" in last


@pytest.mark.parametrize("name", ["images", "images.npz", "images.npy"])
def test_json_and_csv_have_every_image_with_the_same_numbers(folder, capsys, name):
    _, out, _ = run(capsys, "score", folder / "detector", folder / name, "--fpr", "0.05", "--json")
    report = json.loads(out)
    assert report["assumed"] == "every image on its own"
    assert report["of"] == len(report["images"]) == 32
    assert report["out_of_distribution"] == sum(row["is_ood"] for row in report["images"])
    assert [row["is_ood"] for row in report["images"][-2:]] == [True, True]
    _, out, _ = run(capsys, "score", folder / "detector", folder / name, "--fpr", "0.05", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["p_value"]) for row in rows] == [row["p_value"] for row in report["images"]]


def test_score_takes_a_false_discovery_rate(folder, capsys):
    _, out, _ = run(
        capsys, "score", folder / "detector", folder / "images", "--fdr", "0.2", "--json"
    )
    assert json.loads(out)["rule"] == "false-discovery rate 0.2"


def test_evaluate_prints_and_saves_tables(folder, capsys, tmp_path):
    words = ["--inliers", "digits", "--outliers", "inverted", "rotation", "photos", "--n", "100"]
    more = ["--contamination", "1", "0.2", "--statistics", "log_prob", "pixel_pca"]
    code, out, _ = run(
        capsys, "evaluate", folder / "detector", *words, *more, "--out", tmp_path / "results"
    )
    assert code == 0
    assert "pixel_pca" in out
    saved = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert saved[0]["provenance"]["detector"]["runs"][0]["preset"] == "tiny"
    rows = {(r["set"], r["statistic"], r["contamination"]) for r in saved[0]["rows"]}
    assert len(rows) == 3 * 2 * 2
    code, out, _ = run(capsys, "evaluate", folder / "detector", *words, "--json")
    assert {row["statistic"] for row in json.loads(out)["rows"]} == {"pixel_pca"}


def test_a_statistic_may_be_given_with_settings(folder, capsys):
    words = ["--inliers", "digits", "--outliers", "inverted", "--n", "50", "--json", "--statistics"]
    settings = ['pixel_pca:{"components": 3}', 'pixel_pca:{"components": 4}']
    _, out, _ = run(capsys, "evaluate", folder / "detector", *words, *settings)
    configs = [about["config"]["components"] for about in json.loads(out)["statistics"].values()]
    assert configs == [3, 4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("score nowhere images.npz", "must hold a saved detector"),
        ("score detector nowhere.txt", "images must be a folder, an .npz or an .npy file"),
        ("score detector images.npz --fpr 0.0001", "fpr must be at least 1/(n + 1)"),
        ("calibrate nowhere --out x", "RUN must be a folder of `tfbnood train`"),
        ("calibrate run --statistic magic --out x", "statistic must be auto or one of"),
        ("calibrate run --statistic waic --out x", "list of at least two"),
        ("calibrate run --statistic pixel_pca:{ --out x", "settings must be a JSON object"),
        ("evaluate detector --inliers digits --outliers nothing", "'nothing' was not found"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(folder, capsys, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TFBNOOD_DATA", raising=False)
    code, out, err = run(capsys, *words.split())
    assert code == 2
    assert out == ""
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (folder / "x").exists()
