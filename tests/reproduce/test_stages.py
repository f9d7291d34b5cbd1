"""Processes may share a folder of stages, but not a stage."""

import pytest

from tfbnood.errors import TfbnoodError
from tfbnood.reproduce.stages import Stages


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
