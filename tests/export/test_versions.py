"""Versions of a model base are whole or not there, whoever else exports and whatever the disk says."""

import subprocess
import sys

import numpy as np
import pytest
from faults import assert_killed, contents, fill, make_read_only, mounted, run_python

import tfbnood
from tfbnood._core.files import version_folders
from tfbnood.cli import main
from tfbnood.errors import TfbnoodError

EXPORT = """
import os, sys
import numpy as np
import tensorflow as tf
import tfbnood
from tfbnood._core import files
images = np.random.RandomState(0).randint(0, 255, (150, 8, 8, 1)).astype(np.uint8)
detector = tfbnood.Detector(None, "pixel_pca", reference=images).calibrate(images)
%s
print("ready", flush=True)
sys.stdin.readline()
print(detector.export(sys.argv[1]).name)
"""


@pytest.fixture(scope="module")
def pixels(digits):
    detector = tfbnood.Detector(None, "pixel_pca", reference=digits.train)
    return detector.calibrate(digits.calibration)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_two_exports_into_one_base_at_once_are_two_whole_versions(tmp_path):
    command = [sys.executable, "-c", EXPORT % "", str(tmp_path / "base")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(process.communicate()[0] for process in processes) == ["1\n", "2\n"]
    assert names(tmp_path / "base") == ["1", "2"]
    one, two = (contents(version) for version in version_folders(tmp_path / "base").values())
    assert one.keys() == two.keys() >= {"saved_model.pb", "assets.extra/detector.json"}


def test_what_a_killed_export_left_is_removed_by_the_next(pixels, tmp_path):
    kill = "tf.saved_model.save = lambda *a, **k: os.kill(os.getpid(), 9)"
    assert_killed(run_python(EXPORT % kill, tmp_path, input="\n"))
    (left,) = names(tmp_path)
    assert left.startswith(".partial-")  # no number: no server loads it
    assert pixels.export(tmp_path).name == "1"
    assert names(tmp_path) == ["1"]


def test_a_full_disk_is_one_line_and_the_old_version_stays(pixels, tmp_path, capsys):
    pixels.save(tmp_path / "detector")
    with mounted(tmp_path / "disk", "size=4m") as disk:
        version = pixels.export(disk / "base")
        before = contents(version)
        size = sum(map(len, before.values()))
        for leave in (0, 8192, size // 4096 // 2 * 4096):
            fill(disk, leave)
            with pytest.raises(
                TfbnoodError, match=r"base cannot be written \(No space left on"
            ) as one:
                pixels.export(disk / "base")
            assert "\n" not in str(one.value)
            assert names(disk / "base") == ["1"]
        words = ["export", str(tmp_path / "detector"), "--out", str(disk / "base")]
        assert main(words) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert line == f"tfbnood: {disk / 'base'} cannot be written (No space left on device)"
        assert contents(version) == before


def test_a_read_only_disk_is_one_line(pixels, tmp_path):
    with mounted(tmp_path / "disk", "size=1m") as disk:
        make_read_only(disk)
        with pytest.raises(TfbnoodError, match=r"base cannot be written \(Read-only file system\)"):
            pixels.export(disk / "base")


def test_a_result_on_a_full_disk_is_one_line_and_the_old_one_stays(
    pixels, digits, tmp_path, capsys
):
    result = tfbnood.evaluate(pixels, digits.test[:50], {"inverted": 255 - digits.test[:50]})
    with mounted(tmp_path / "disk", "size=1m") as disk:
        result.save(disk / "result")
        before = contents(disk / "result")
        assert len(before) == 3
        fill(disk)
        for path in (disk / "result", disk / "new.json", disk / "new.md", disk / "new.png"):
            with pytest.raises(
                TfbnoodError, match=r"cannot be written \(No space left on device\)"
            ):
                result.save(path)
        assert contents(disk / "result") == before
        assert names(disk) == ["filling", "result"]
        pixels.save(tmp_path / "detector")
        words = ["evaluate", str(tmp_path / "detector"), "--inliers", "digits", "--n", "50"]
        words += ["--outliers", "inverted", "--out", str(disk / "result")]
        assert main(words) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert line.startswith("tfbnood: ")
        assert line.endswith("cannot be written (No space left on device)")
        assert contents(disk / "result") == before
    assert np.isfinite(result.rows[0].auroc.value)
