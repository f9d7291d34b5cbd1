"""Files are whole or not there."""

import json

import pytest

from tfbnood._core.files import atomic_path, remove_partials, write_json
from tfbnood.errors import TfbnoodError


def test_a_file_appears_whole_in_a_folder_that_is_made_for_it(tmp_path):
    path = tmp_path / "new" / "deep" / "file.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent  # A rename across file systems is not atomic.
        assert temporary.suffix == path.suffix
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def stop_half_way():
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        stop_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_the_system_refuses_is_a_plain_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TfbnoodError, match=r"run\.json cannot be written \(Not a directory\)"):
        write_json(tmp_path / "file" / "deep" / "run.json", {})


def test_json_is_readable_by_people(tmp_path):
    content = {"data": "8×8", "list": [1, 2.5, None]}
    write_json(tmp_path / "run.json", content)
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert "8×8" in text
    assert text.endswith("}\n")


def test_only_partial_files_are_removed(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with atomic_path(tmp_path / "checkpoint.keras") as temporary:
        temporary.write_text("half")
        leftover = tmp_path / temporary.name.replace(".partial-", ".partial-9")
        temporary.rename(leftover)
        temporary.write_text("")
    remove_partials(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "checkpoint.keras"}
    remove_partials(tmp_path / "not there")
