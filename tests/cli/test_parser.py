"""The command line as a whole: helpful, one-line errors, exit codes that scripts can rely on."""

import errno
import re
import subprocess
import sys

import pytest

from tfbnood.cli import data, main
from tfbnood.cli.parser import _as_typed, make_parser

COMMANDS = make_parser()._subparsers._group_actions[0].choices


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_says_what_it_does(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: tfbnood {command} ")
    assert re.search(r"\n\n[A-Z][^.]+\.", text), "no sentence of description"


def test_help_lists_the_commands(capsys):
    assert {"demo", "data", "train"} <= set(COMMANDS)
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert [name for name in COMMANDS if not re.search(rf"^    {name}\s+\w", text, re.M)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_sentence_of_help(command):
    actions = COMMANDS[command]._actions
    assert [action.dest for action in actions if not action.help] == []


def test_ctrl_c_is_one_line_and_exit_code_130(capsys, monkeypatch):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "run", interrupted)
    assert main(["data"]) == 130
    assert capsys.readouterr().err == "tfbnood: interrupted\n"


def test_a_refusal_is_the_exit_code_of_the_process():
    line = [sys.executable, "-m", "tfbnood", "score", "nowhere", "nowhere.npz", "--fpr", "5"]
    refused = subprocess.run(line, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("tfbnood: --fpr must lie in (0, 1)")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("batch_size must be at least 1", "--batch-size must be at least 1"),
        ("skip_unreadable=True leaves them out", "--skip-unreadable leaves them out"),
        ("Received: batch_size=0", "Received: --batch-size=0"),
        ("seed must lie in [0, 2)", "--seed must lie in [0, 2)"),
        ("the seed must be", "the seed must be"),
        ("runs/batch_size/1 is not there", "runs/batch_size/1 is not there"),
    ],
)
def test_errors_of_the_library_name_options_as_typed(message, expected):
    assert _as_typed(message, ["--seed", "--batch-size", "--skip-unreadable"]) == expected


def test_a_fault_of_the_disk_is_one_line_and_exit_code_2(capsys, monkeypatch):
    def full(arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "results/page.html")

    monkeypatch.setattr(data, "run", full)
    assert main(["data"]) == 2
    assert capsys.readouterr().err == "tfbnood: results/page.html: No space left on device\n"
