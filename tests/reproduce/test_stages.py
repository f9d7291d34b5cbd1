"""Stages resume after a kill; processes may share a folder of them, but not a stage."""

import pytest

from tfbnood.errors import TfbnoodError
from tfbnood.reproduce.stages import Stages, is_of


def test_a_finished_stage_is_not_run_again(tmp_path, capsys):
    calls = []

    def work():
        calls.append(1)
        return {"value": len(calls)}

    for _ in range(2):
        stages = Stages(tmp_path, {"n": 3}, total=2)
        assert stages.run("one", work) == {"value": 1}
    assert len(calls) == 1
    assert "[1/2] one took" in capsys.readouterr().err


def test_a_stage_of_another_training_is_run_again_and_says_so(tmp_path, capsys):
    def run(settings, result):
        return Stages(tmp_path, {}, total=1).run("one", lambda: result, settings)

    assert run({"steps": 100, "sets": ("a",)}, 1) == 1
    assert run({"steps": 100, "sets": ("a",)}, 2) == 1
    assert "new settings" not in capsys.readouterr().err
    assert run({"steps": 200, "sets": ("a",)}, 3) == 3
    assert "one, again with new settings …" in capsys.readouterr().err
    path = tmp_path / "stages" / "one.json"
    assert is_of(path, {"steps": 200, "sets": ["a"]})
    assert not is_of(path, {"steps": 100, "sets": ["a"]})
    # Files of earlier versions do not say what they are of.
    path.write_text('{"result": 4, "seconds": 1}')
    assert run(None, 5) == 4
    assert run({"steps": 200}, 5) == 5


def test_a_stage_that_fails_leaves_the_finished_ones(tmp_path):
    def fail():
        raise KeyboardInterrupt

    stages = Stages(tmp_path, {}, total=2)
    stages.run("one", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        stages.run("two", fail)
    (tmp_path / "stages" / ".partial-1-two.json").write_text("{")  # as a kill would leave
    again = Stages(tmp_path, {}, total=2)
    assert again.run("one", fail) == 1
    assert again.run("two", lambda: 2) == 2


def test_other_settings_need_another_folder(tmp_path):
    Stages(tmp_path, {"n": 3}, total=1)
    with pytest.raises(TfbnoodError, match="out must be a new folder"):
        Stages(tmp_path, {"n": 4}, total=1)


def test_a_stage_that_another_process_runs_is_refused_and_others_are_not(tmp_path):
    ours, theirs = (Stages(tmp_path, {"n": 3}, total=2) for _ in range(2))

    def work():
        with pytest.raises(
            TfbnoodError, match="is in use: another process works on this stage one;"
        ):
            theirs.run("one", list)
        return theirs.run("two", lambda: 2)

    assert ours.run("one", work) == 2
    assert theirs.run("one", list) == 2
    names = {path.name for path in (tmp_path / "stages").iterdir()}
    assert names == {"one.json", "two.json"}


@pytest.mark.parametrize("text", ["", "[1]", '{"result": 1}', '{"result": 1, "seconds": "x"}'])
def test_a_damaged_stage_is_named(tmp_path, text):
    stages = Stages(tmp_path, {}, total=1)
    stages.run("one", lambda: 1)
    (tmp_path / "stages" / "one.json").write_text(text)
    with pytest.raises(
        TfbnoodError, match=r"one\.json is not readable .* remove it to run the stage"
    ):
        stages.run("one", lambda: 1)


def test_other_settings_are_named(tmp_path):
    Stages(tmp_path, {"n": 3}, total=1)
    with pytest.raises(TfbnoodError, match=r"with n=3 instead of 4$"):
        Stages(tmp_path, {"n": 4}, total=1)
