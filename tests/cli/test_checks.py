"""What is right passes the checks; tests/cli/test_refusals.py has what is wrong."""

import numpy as np
import pytest

from tfbnood._core import shipped
from tfbnood.cli import checks, values
from tfbnood.cli.parser import make_parser
from tfbnood.data.catalogue import DATA_DIR_VARIABLE, NAMES
from tfbnood.data.pools import MADE_OUTLIERS
from tfbnood.errors import TfbnoodError
from tfbnood.reproduce.studies import SCALES
from tfbnood.statistics.registry import names


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (values.integer(1), "1"),
        (values.integer(0, 65535), "0"),
        (values.integer(0, 65535), "65535"),
        (values.RATE, "1e-9"),
        (values.RATE, "0.999"),
        (values.CONTAMINATION, "1"),
        (values.CONTAMINATION, "0.001"),
        (values.MUTATION, "0"),
        (values.MUTATION, "0.999"),
        (values.POSITIVE, "1e9"),
    ],
)
def test_numbers_inside_the_limits_are_taken(kind, text):
    assert kind(text) == float(text)


@pytest.mark.parametrize("name", ["auto", *names()])
def test_every_statistic_is_known_alone_and_with_settings(name):
    assert values.statistic_name(name) == name
    assert values.statistic(name).make() == name  # the name alone: maybe a detector's own
    chosen = values.statistic(name + ':{"r1": 0, "draws": [2, 8]}')
    assert (chosen.name, chosen.settings) == (name, {"r1": 0, "draws": [2, 8]})


def test_every_data_set_is_known_and_those_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    checks.check_data_sets("--data", NAMES, None)
    checks.check_data_sets("--outliers", MADE_OUTLIERS, None, also=MADE_OUTLIERS)
    for file in ("things_train.npz", "things_test.npz", "whole.npz", "tests_only_test.npz"):
        np.savez(tmp_path / file, images=np.zeros((2, 8, 8, 1), np.uint8))
    mine = ("things", "whole", "tests_only")
    checks.check_data_sets("--data", (*NAMES, *mine), str(tmp_path))
    for name in mine:
        with pytest.raises(TfbnoodError, match=f"--data must be .* Received: {name}"):
            checks.check_data_sets("--data", [name], None)
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path))
    checks.check_data_sets("--data", mine, None)
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(TfbnoodError, match=f"{DATA_DIR_VARIABLE} must name an existing folder"):
        checks.check_data_sets("--data", NAMES, None)


def test_a_detector_is_a_folder_or_a_shipped_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in shipped.names():
        found = checks.detector_folder(name)
        assert (found.parent.name, (found / "detector.json").is_file()) == (name, True)
    own = tmp_path / shipped.names()[0]
    own.mkdir()
    (own / "detector.json").write_text("{}")
    # A user's folder comes first, whatever its name.
    assert checks.detector_folder(own.name).resolve() == own


def test_an_export_is_a_version_or_a_model_base_with_its_newest(tmp_path):
    for name in ("2", "10", "²", "notes"):
        (tmp_path / "base" / name).mkdir(parents=True)
        (tmp_path / "base" / name / "saved_model.pb").touch()
    (tmp_path / "base" / "11").mkdir()  # which has no model
    assert checks.find_detector(str(tmp_path / "base")) == (None, tmp_path / "base" / "10")
    one = tmp_path / "base" / "2"
    assert checks.find_detector(str(one)) == (None, one)


def test_a_folder_to_be_made_may_be_there_or_lie_deep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (".", "new", "new/deep", str(tmp_path), str(tmp_path / "new" / "deep")):
        checks.check_out(path)
    assert list(tmp_path.iterdir()) == []


def test_names_written_in_help_texts_are_real():
    commands = make_parser()._subparsers._group_actions[0].choices

    def text(command):
        return " ".join(commands[command].format_help().split())

    assert all(word in text("evaluate") for word in MADE_OUTLIERS)
    assert "such as fashion_mnist_realnvp" in text("reproduce")
    assert "fashion_mnist_realnvp" in [study.name for study in SCALES["cpu"]]
    for command in ("score", "evaluate", "export"):
        assert "name of a shipped one, e.g. fashion_mnist_vae" in text(command)
    assert "fashion_mnist_vae" in shipped.names()
    assert "e.g. fashion_mnist (`tfbnood data` lists them)" in text("train")
    assert "fashion_mnist" in NAMES
