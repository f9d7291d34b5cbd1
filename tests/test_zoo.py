"""Detectors that ship with the package: whole, small, documented, and as good as their manifest says."""

import json
import shutil

import keras
import numpy as np
import pytest

import tfbnood
from tfbnood import zoo
from tfbnood._core import shipped
from tfbnood.errors import TfbnoodError
from tfbnood.metrics import auroc
from tfbnood.statistics.pretext.statistic import Pretext

NAMES = zoo.list_models()


def test_the_demos_detector_is_there():
    assert "digits_realnvp" in NAMES
    assert tfbnood.list_models() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_what_the_manifest_says(name):
    assert zoo.changed_files(zoo.base(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_manifests_say_where_numbers_come_from_and_detectors_are_small(name):
    manifest = zoo.manifest(name)
    for key in ("data", "preset", "steps", "minutes", "bits_per_dim", "train_sha256"):
        assert manifest["training"][key]
    for key in ("versions", "machine", "licence_of_the_data", "command", "auroc"):
        assert key in manifest
    assert "no image is inside" in manifest["licence_of_the_data"]
    for by_set in manifest["auroc"].values():
        for shares in by_set.values():
            assert all(0 <= value <= 1 for value in shares.values())
    folder = zoo.base(name)
    assert (folder / "1" / "saved_model.pb").is_file()
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 12e6


@pytest.mark.parametrize("name", NAMES)
def test_no_array_of_a_detector_is_a_set_of_images(name):
    height, width, channels = tfbnood.load(name).image_shape
    with np.load(zoo.base(name) / "detector" / "arrays.npz") as arrays:
        for key in arrays.files:
            values = arrays[key].astype(np.float32)
            if f"{key}factor_" in arrays.files:  # Large arrays are stored as integers.
                values *= arrays[f"{key}factor_"]
            assert values.shape[1:] != (height, width, channels)
            # Principal axes are at right angles to each other, which images, all positive, never are.
            if values.shape[1:] == (height * width * channels,):
                np.testing.assert_allclose(values @ values.T, np.eye(len(values)), atol=5e-3)


def test_a_shipped_detector_works_at_once():
    detector = tfbnood.load("digits_realnvp")
    assert isinstance(detector.model, keras.Model)
    assert detector.statistic.name == "ensemble"
    assert detector.about["manifest"]["name"] == "digits_realnvp"
    digits = tfbnood.data.load("digits").test[:100]
    scores = detector.score(np.concatenate([digits, 255 - digits]))
    assert auroc(np.repeat([False, True], 100), scores) > 0.99
    assert detector.predict(digits, fpr=0.05).is_ood.mean() < 0.15


@pytest.fixture
def copied(tmp_path, monkeypatch):
    shutil.copytree(zoo.base("digits_realnvp"), tmp_path / "copy")
    monkeypatch.setattr(shipped, "PLACES", (tmp_path,))
    return tmp_path / "copy"


def test_a_changed_a_missing_and_a_new_file_are_found(copied):
    changed = copied / "1" / "saved_model.pb"
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    (copied / "detector" / "arrays.npz").unlink()
    (copied / "detector" / "more.py").write_text("print('hello')")
    assert zoo.changed_files(copied) == [
        "1/saved_model.pb",
        "detector/arrays.npz",
        "detector/more.py",
    ]


def test_a_version_may_be_missing_as_a_whole_but_not_in_part(copied):
    (copied / "1" / "variables" / "variables.index").unlink()
    assert zoo.changed_files(copied) == ["1/variables/variables.index"]
    shutil.rmtree(copied / "1")
    assert zoo.changed_files(copied) == []
    shutil.rmtree(copied / "detector")
    assert len(zoo.changed_files(copied)) == 3


def test_a_model_is_only_taken_for_a_training_that_is_the_same(copied):
    made = json.loads((copied / "MANIFEST.json").read_text())["training"]
    wanted = {key: made[key] for key in ("data", "model", "preset", "steps", "seed")}
    assert isinstance(zoo.trained_model("copy", {**wanted, "mutation": 0.0}), keras.Model)
    assert zoo.trained_model("copy", {**wanted, "steps": 7}) is None
    assert zoo.trained_model("copy", {**wanted, "mutation": 0.3}) is None
    assert zoo.trained_model("no_such", wanted) is None


@pytest.mark.parametrize("name", ["no_such", "", "../no_such/digits_realnvp", "/etc", 3])
def test_other_names_are_refused_in_one_line(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TfbnoodError, match=r"name must be one of the shipped detectors, .*digits"):
        tfbnood.load(name)


def test_a_damaged_manifest_is_said_so(copied):
    (copied / "MANIFEST.json").write_text("{")
    with pytest.raises(TfbnoodError, match=r"MANIFEST.json must be JSON"):
        zoo.manifest("copy")


def test_a_member_is_of_the_same_settings_and_images_or_none():
    known = zoo.manifest("digits_realnvp")["training"]["train_sha256"]
    member = zoo.fitted_member("pretext", Pretext().get_config(), known)
    assert member is not None
    images = tfbnood.data.load("digits").test[:50]
    own = tfbnood.load("digits_realnvp").statistic.member("pretext")
    np.testing.assert_array_equal(member.score(images), own.score(images))
    assert zoo.fitted_member("pretext", Pretext(steps=50).get_config(), known) is None
    assert zoo.fitted_member("pretext", Pretext().get_config(), "another") is None
