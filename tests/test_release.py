"""The check of the shipped detectors finds what is wrong with them, and states what it cannot check."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfbnood

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
    assert bad.stdout.startswith("pixels: saved_model.pb is not what was exported")


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
