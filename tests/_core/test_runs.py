"""A folder of work resumes with the same settings, refuses others, and belongs to one process at a time."""

import json
import os
import signal
import subprocess
import sys

import pytest
from faults import contents

from tfbnood._core.files import write_json
from tfbnood._core.runs import RunFolder
from tfbnood.errors import TfbnoodError

SETTINGS = {"seed": 3, "sizes": (1, 2)}


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "runs" / "one", "run.json", "run")


def start(run, settings=SETTINGS):
    with run.resume(settings) as earlier:
        write_json(run.folder / run.file, {**settings, "result": 1})
        return earlier


def test_the_second_call_gets_what_the_first_one_wrote(run):
    assert start(run) == {}
    assert start(run) == {"seed": 3, "sizes": [1, 2], "result": 1}
    assert [path.name for path in run.folder.iterdir()] == ["run.json"]


def test_settings_may_be_within_the_file_and_have_defaults(tmp_path):
    search = RunFolder(tmp_path, "search.json", "search", within="settings")
    write_json(tmp_path / "search.json", {"settings": {"seed": 3}, "trials": []})
    with search.resume({"seed": 3, "mutation": 0.0}, defaults={"mutation": 0.0}) as earlier:
        assert earlier == {"settings": {"seed": 3}, "trials": []}
    with pytest.raises(TfbnoodError, match=r"mutation=None instead of 0\.0"):
        start(search, {"seed": 3, "mutation": 0.0})


def test_other_settings_are_refused_with_what_differs(run):
    start(run)
    before = contents(run.folder)
    message = (
        r"same settings\. Received: .*one, with seed=3 instead of 4, more=None instead of True$"
    )
    with pytest.raises(TfbnoodError, match=message) as caught:
        start(run, {**SETTINGS, "seed": 4, "more": True})
    assert "\n" not in str(caught.value)
    assert contents(run.folder) == before


@pytest.mark.parametrize("text", ["", '{"data": ', "[1, 2]", "\x00", "3", "[" * 100_000], ids=repr)
def test_damaged_json_is_refused_and_left(run, text):
    start(run)
    (run.folder / "run.json").write_text(text)
    with pytest.raises(
        TfbnoodError, match=r"run\.json is not readable .* remove the folder"
    ) as one:
        start(run)
    assert "\n" not in str(one.value)
    assert (run.folder / "run.json").read_text() == text


def test_settings_that_are_not_there_are_damage(tmp_path):
    write_json(tmp_path / "search.json", {"trials": []})
    with pytest.raises(TfbnoodError, match=r"search\.json is not readable \('settings'\)"):
        start(RunFolder(tmp_path, "search.json", "search", within="settings"))


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(TfbnoodError, match="out must be a new or empty folder"):
        start(RunFolder(tmp_path, "run.json", "run"))
    with pytest.raises(TfbnoodError, match=r"out must be a folder\. Received: .*, which is a file"):
        start(RunFolder(tmp_path / "thesis.tex", "run.json", "run"))
    assert contents(tmp_path) == {"thesis.tex": b"precious"}


def test_leftovers_go_and_do_not_make_a_folder_foreign(run):
    (run.folder / "deep" / ".partial-1-x").mkdir(parents=True)
    (run.folder / "deep").rename(run.folder / ".partial-abc-deep")
    (run.folder / ".partial-1-run.json").write_text("{")
    (run.folder / ".lock").touch()
    assert start(run) == {}
    assert contents(run.folder).keys() == {"run.json"}


def test_a_call_that_fails_at_once_leaves_no_folder(run):
    with pytest.raises(RuntimeError), run.resume(SETTINGS):
        raise RuntimeError
    assert not run.folder.exists()


HOLD = """
import pathlib, sys
from tfbnood._core.runs import RunFolder
with RunFolder(pathlib.Path(sys.argv[1]), "run.json", "run").resume({"seed": 3, "sizes": [1, 2]}):
    print("in", flush=True)
    sys.stdin.readline()
"""


def test_a_second_process_is_refused_until_the_first_is_killed(run):
    line = [sys.executable, "-c", HOLD, str(run.folder)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "in\n"
        with pytest.raises(TfbnoodError, match=r"one is in use: another process works on this run"):
            start(run)
        second = subprocess.run(line, capture_output=True, text=True, input="\n")
        assert "is in use" in second.stderr.splitlines()[-1]
        os.kill(first.pid, signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL
    assert start(run) == {}
    assert json.loads((run.folder / "run.json").read_text())["result"] == 1


def test_parts_are_locked_one_by_one(run):
    refused = pytest.raises(TfbnoodError, match="another process works on this run two;")
    with run.lock("one"), run.lock("two"), refused, run.lock("two"):
        pass
    assert list(run.folder.iterdir()) == []
