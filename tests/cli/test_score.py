"""`tfbnood score`, as typed: folders and array files, tables, JSON and CSV, own and shipped detectors."""

import csv
import io
import json
import shutil

import pytest
from PIL import Image


def test_the_flagged_images_of_a_folder_are_listed_worst_first(folder, run):
    code, out, _ = run("score", folder / "detector", folder / "images", "--fpr", "0.01")
    assert code == 0
    header, first, second, *_ = out.splitlines()
    assert header.split() == ["image", "score", "p-value", "bits/dim"]
    assert {first.split()[0], second.split()[0]} == {"white/30.png", "white/31.png"}
    assert "of 32 images out-of-distribution by pixel_pca (false-alarm rate 0.01" in out


@pytest.mark.parametrize("name", ["images", "images.npz", "images.npy"])
def test_json_and_csv_have_every_image_with_the_same_numbers(folder, run, name):
    _, out, _ = run("score", folder / "detector", folder / name, "--fpr", "0.05", "--json")
    report = json.loads(out)
    assert report["assumed"] == "every image on its own"
    assert report["of"] == len(report["images"]) == 32
    assert report["out_of_distribution"] == sum(row["is_ood"] for row in report["images"])
    assert [row["is_ood"] for row in report["images"][-2:]] == [True, True]
    last = {"images": "white/31.png"}.get(name, f"{name}[31]")
    assert report["images"][-1]["image"] == last
    _, out, _ = run("score", folder / "detector", folder / name, "--fpr", "0.05", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["p_value"]) for row in rows] == [row["p_value"] for row in report["images"]]


def test_a_false_discovery_rate_may_be_given(folder, run):
    _, out, _ = run("score", folder / "detector", folder / "images", "--fdr", "0.2", "--json")
    assert json.loads(out)["rule"] == "false-discovery rate 0.2"


def test_a_shipped_detector_is_known_by_its_name(folder, run):
    code, out, _ = run("score", "digits_realnvp", folder / "images.npy", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["statistic"] == "ensemble"
    assert [row["is_ood"] for row in report["images"][-2:]] == [True, True]


def test_files_that_differ_from_the_arrays_of_a_detector_are_a_warning(
    folder, run, tmp_path, digits
):
    for index, image in enumerate(digits.test[:3]):
        Image.fromarray(image[..., 0]).resize((16, 16)).save(tmp_path / f"{index}.jpg")
    page = tmp_path / "page.html"
    code, out, _ = run("score", folder / "detector", tmp_path, "--out", page)
    assert code == 0
    for line in (
        "3 of 3 files were resized (from 16×16 to 8×8), none of those that the detector was calibrated on: "
        "expect false alarms; see tolerate.",
        "3 files are JPEG while the detector was calibrated on arrays: expect false alarms; see tolerate.",
    ):
        assert line in out.splitlines()
        assert line in page.read_text("utf-8")


def test_an_unreadable_file_is_named_with_the_option_that_skips_it(folder, run, tmp_path):
    shutil.copytree(folder / "images", tmp_path / "images")
    (tmp_path / "images" / "31.png").write_bytes(b"no image")
    code, out, err = run("score", folder / "detector", tmp_path / "images")
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert "--skip-unreadable leaves them out" in line
    assert "1 of 33 unreadable: 31.png" in line
    code, out, err = run(
        "score", folder / "detector", tmp_path / "images", "--skip-unreadable", "--json"
    )
    assert code == 0
    assert "1 file could not be read" in err
    assert json.loads(out)["of"] == 32


def test_a_rate_that_the_calibration_cannot_give_is_refused_by_the_name_of_the_option(folder, run):
    code, out, err = run("score", folder / "detector", folder / "images.npz", "--fpr", "0.0001")
    assert (code, out) == (2, "")
    assert "tfbnood: --fpr must be at least 1/(n + 1)" in err.splitlines()[-1]
