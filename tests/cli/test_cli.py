"""The command line: helpful, one-line errors, exit codes that scripts can rely on."""

import json
import os
import re
import sys

import pytest

from tfbnood._core import quiet
from tfbnood.cli import parser as cli
from tfbnood.models.presets import PRESETS
from tfbnood.models.registry import MODELS

LINE = "train --data digits --model vae --preset tiny --steps 1 --batch-size 8 --out"
TRAIN = LINE.split()


COMMANDS = cli._parser()._subparsers._group_actions[0].choices


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_says_what_it_does(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main([command, "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: tfbnood {command} ")
    assert re.search(r"\n\n[A-Z][^.]+\.", text), "no sentence of description"


def test_help_lists_the_commands(capsys):
    assert {"demo", "data", "train"} <= set(COMMANDS)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert [name for name in COMMANDS if not re.search(rf"^    {name}\s+\w", text, re.M)] == []


def test_help_of_train_lists_its_options(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    text = capsys.readouterr().out
    words = "--data --model --preset --steps --out --batch-size --seed --learning-rate"
    more = "--jit --no-jit --checkpoint-every --data-dir"
    assert [option for option in f"{words} {more}".split() if option not in text] == []


def test_the_choices_are_those_of_the_package():
    # Written out in cli.py, so that --help need not import TensorFlow.
    assert tuple(MODELS) == cli.MODEL_NAMES
    for presets in PRESETS.values():
        assert set(presets) == set(cli.PRESET_NAMES)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "fly",
        "train",
        "train --data digits --preset tiny --out x",
        "train --data digits --preset tiny --steps 1",
        "train --preset tiny --steps 1 --out x",
        "train --data digits --steps 1 --out x",
        "train --data digits --preset tiny --steps many --out x",
        "train --data digits --preset tiny --steps 1 --out x --model gan",
        "train --data digits --preset huge --steps 1 --out x",
        "demo --steps many",
    ],
)
def test_missing_and_wrong_arguments_are_exit_code_2(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        cli.main(words.split())
    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("tfbnood")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--data", "no_such_data"], "no_such_data"),
        (["--steps", "0"], "steps must be at least 1"),
        (["--batch-size", "0"], "batch_size must be at least 1"),
        (["--data-dir", "not there"], "not there"),
        (["--out", "/dev/null/run"], "/dev/null/run"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_exit_code_2(change, message, capsys, tmp_path):
    assert cli.main([*TRAIN, str(tmp_path / "run"), *change]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("tfbnood: ")
    assert message in line
    assert not (tmp_path / "run").exists()


def test_ctrl_c_is_one_line_and_exit_code_130(capsys, monkeypatch):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_data", interrupted)
    assert cli.main(["data"]) == 130
    assert capsys.readouterr().err == "tfbnood: interrupted\n"


def test_data_as_json(capsys):
    assert cli.main(["data", "digits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "digits",
            "shape": [8, 8, 1],
            "train": 1100,
            "calibration": 300,
            "test": 397,
            "source": "scikit-learn's load_digits",
        }
    ]


def test_train_says_what_it_made_and_nothing_else(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*TRAIN, "run"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "trained vae: run/model.keras, run/run.json\n"
    (line,) = captured.err.splitlines()
    assert re.fullmatch(r"step 1/1: \d+\.\d+ bits/dim, \d+\.\d+ s/step, 00:00 left", line)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_only_the_cpp_log_is_kept_back(capfd):
    def noisy():
        # To the descriptor, as C++ does.
        os.write(2, b"I0000 00:00:1794798675.480496    2695 port.cc:153] oneDNN\n")
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called\n")
        os.write(2, b"E: a Python error\n")
        raise ImportError("broken")

    with pytest.raises(ImportError, match="broken"):
        quiet._without_cpp_log(noisy)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "E: a Python error\nafter\n"


def test_the_log_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    before = list(sys.meta_path)
    with quiet.quiet_tensorflow():
        assert sys.meta_path == before
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    with quiet.quiet_tensorflow():
        assert sys.meta_path != before
    assert sys.meta_path == before
