"""The check of the shipped detectors finds what is wrong with them, and states what it cannot check."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfbnood
from tfbnood.zoo import changed_files

ROOT = Path(__file__).resolve().parents[1]
CHECK = ROOT / "tools" / "release" / "check.py"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with one base, `pixels`: a detector and its export."""
    folder = tmp_path_factory.mktemp("savedmodels")
    digits = tfbnood.data.load("digits")
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    detector.calibrate(digits.calibration).export(folder / "pixels")
    detector.save(folder / "pixels" / "detector")
    return folder


@pytest.fixture
def folder(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "savedmodels")


@pytest.fixture(scope="module")
def check():
    return runpy.run_path(str(CHECK))["check"]


def test_an_export_that_is_whole_passes_and_a_changed_file_is_found(folder):
    command = [sys.executable, str(CHECK), "pixels", "--folder", str(folder)]
    good = subprocess.run(command, capture_output=True, text=True)
    assert (good.returncode, good.stdout) == (0, "pixels: ok; no MANIFEST.json\n"), good.stderr
    with (folder / "pixels" / "1" / "saved_model.pb").open("ab") as file:
        file.write(b"\x00")
    bad = subprocess.run(command, capture_output=True, text=True)
    assert bad.returncode == 1
    assert bad.stdout.startswith("pixels: saved_model.pb differs from the export")


def test_a_base_without_a_version_is_named_and_its_detector_is_checked(folder, check):
    base = folder / "pixels"
    shutil.rmtree(base / "1")
    problems, missing = check(base)
    assert problems == []
    assert missing == ["no MANIFEST.json", "no exported version (`tfbnood export` makes one)"]
    (base / "detector" / "arrays.npz").write_bytes(b"")
    problems, _ = check(base)
    assert problems[0].startswith("detector/ does not load: ")


def test_a_folder_that_holds_no_detector_is_a_problem(tmp_path, check):
    problems, missing = check(tmp_path)
    assert problems == ["holds no detector"]
    assert len(missing) == 3


def test_an_export_of_another_detector_is_found(folder, check):
    base = folder / "pixels"
    digits = tfbnood.data.load("digits")
    other = tfbnood.Detector(None, "pixel_pca", reference=np.flip(digits.train[:200], axis=1))
    shutil.rmtree(base / "detector")
    other.calibrate(digits.calibration).save(base / "detector")
    problems, _ = check(base)
    assert len(problems) == 1
    assert problems[0].startswith("differs from detector/ by ")


def test_an_unknown_name_lists_those_that_are_there(folder):
    command = [sys.executable, str(CHECK), "pixel", "--folder", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr.endswith("NAME must be one of pixels. Received: pixel\n")


@pytest.mark.parametrize("command", ["release/train", "release/check", "check_savedmodels"])
def test_commands_run_from_any_folder(command, tmp_path):
    path = ROOT / "tools" / command
    assert os.access(path, os.X_OK)
    run = subprocess.run([path, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "[NAME ...]" in run.stdout


def test_a_card_states_what_manifest_and_results_do(tmp_path):
    name = "fashion_mnist_vae"
    base = tmp_path / name
    shutil.copytree(ROOT / "savedmodels" / name / "detector", base / "detector")
    shutil.copy(ROOT / "savedmodels" / name / "MANIFEST.json", base)
    command = [sys.executable, str(ROOT / "tools" / "release" / "cards.py")]
    command += ["--folder", str(tmp_path), "--results"]
    subprocess.run([*command, str(ROOT / "results" / "paper")], check=True, capture_output=True)
    card = (base / "README.md").read_text()
    manifest = json.loads((base / "MANIFEST.json").read_text())
    training, own = manifest["training"], manifest["auroc"][manifest["statistic"]]
    assert f"{training['steps']:,} steps of 64 images" in card
    assert f"{training['bits_per_dim']['bits_per_dim_evaluation_mode']:.3f} in evaluation" in card
    assert manifest["licence_of_the_data"] in card
    assert f'tfbnood.load("{name}")' in card
    lines = [line.split(" | ") for line in card.splitlines() if line.startswith("| mnist | ")]
    assert [line[2].split()[0] for line in lines] == [f"{x:.3f}" for x in own["mnist"].values()]
    low, high = re.search(r"\((0\.\d+)–([01]\.\d+)\)", lines[0][2]).groups()
    assert float(low) <= own["mnist"]["1"] <= float(high)
    # A card is made of the manifest, which therefore does not list it.
    assert changed_files(base) == []
    # Figures of another training have no intervals.
    subprocess.run([*command, str(tmp_path / "none")], check=True, capture_output=True)
    assert re.search(r"\| mnist \| 100% \| 0\.\d{3} \|", (base / "README.md").read_text())


def test_sets_that_a_detector_misses_are_among_its_limits(tmp_path):
    make_card = runpy.run_path(str(ROOT / "tools" / "release" / "cards.py"))["make_card"]
    name = "cifar10_pixelcnn"
    card = make_card(ROOT / "savedmodels" / name, tmp_path)
    own = json.loads((ROOT / "savedmodels" / name / "MANIFEST.json").read_text())["auroc"]
    lowest = {one: min(shares.values()) for one, shares in own["ensemble"].items()}
    (line,) = [line for line in card.splitlines() if line.startswith("- Finds only a part of")]
    for outliers, value in lowest.items():
        assert (f"{outliers} ({value:.2f})" in line) == (value < 0.9)
