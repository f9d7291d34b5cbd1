"""Files and folders are whole or not there, whatever happens while they are written."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest
from faults import assert_killed, contents, fill, make_read_only, mounted, run_python

from tfbnood._core import files
from tfbnood._core.files import (
    atomic_folder,
    atomic_path,
    file_sha256,
    is_base,
    list_names,
    next_version,
    read_whole,
    remove_leftovers,
    restore_folder,
    version_folders,
    write_json,
)
from tfbnood._core.locks import lock
from tfbnood.errors import TfbnoodError

KILL = "import os, pathlib, signal, sys\nfrom tfbnood._core import files\nplace = pathlib.Path(sys.argv[1])\n"
DIE = "os.kill(os.getpid(), signal.SIGKILL)"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_folder(path, text):
    with atomic_folder(path) as temporary:
        (temporary / "a.txt").write_text(text)


def test_a_file_appears_whole_in_a_folder_that_is_made_for_it(tmp_path):
    path = tmp_path / "new" / "deep" / "file.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.stat().st_dev == path.parent.stat().st_dev  # else a rename would copy
        assert temporary.name == path.name  # Keras and NumPy look at the suffix
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


def test_a_folder_is_replaced_whole(tmp_path):
    write_folder(tmp_path / "one", "first")
    (tmp_path / "one" / "more.txt").write_text("of the first")
    write_folder(tmp_path / "one", "second")
    assert contents(tmp_path) == {"one/a.txt": b"second"}
    assert names(tmp_path) == ["one"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_folder_even_between_the_renames(tmp_path, error, monkeypatch):
    write_folder(tmp_path / "one", "old")

    def stop(temporary, path):
        path.rename(temporary.with_name("old"))
        raise error

    monkeypatch.setattr(files, "_replace_folder", stop)
    with pytest.raises(error):
        write_folder(tmp_path / "one", "new")
    assert contents(tmp_path) == {"one/a.txt": b"old"}
    assert names(tmp_path) == ["one"]


def test_a_kill_between_the_two_renames_leaves_the_old_folder(tmp_path):
    place = tmp_path / "one"
    write_folder(place, "old")
    code = f"""{KILL}
rename = pathlib.Path.rename
def once(self, target):
    rename(self, target)
    {DIE}
pathlib.Path.rename = once
with files.atomic_folder(place) as temporary:
    (temporary / "a.txt").write_text("new")
"""
    assert_killed(run_python(code, place))
    assert not place.exists()  # it was between the two
    restore_folder(place)
    assert contents(tmp_path) == {"one/a.txt": b"old"}
    assert names(tmp_path) == ["one"]

    assert_killed(run_python(code, place))
    with pytest.raises(RuntimeError), atomic_folder(place):
        raise RuntimeError("the next writer fails as well")
    assert contents(tmp_path) == {"one/a.txt": b"old"}

    assert_killed(run_python(code, place))
    write_folder(place, "newest")
    assert contents(tmp_path) == {"one/a.txt": b"newest"}
    assert names(tmp_path) == ["one"]


@pytest.mark.parametrize("kind", ["atomic_path", "atomic_folder"])
def test_the_next_writer_removes_what_a_killed_one_left_of_the_same_name(tmp_path, kind):
    code = f"""{KILL}
with files.{kind}(place) as temporary:
    {DIE}
"""
    assert_killed(run_python(code, tmp_path / "one"))
    assert_killed(run_python(code, tmp_path / "more-one"))
    assert len(names(tmp_path)) == 2
    write_folder(tmp_path / "one", "new")
    left, place = names(tmp_path)
    assert place == "one"
    assert re.fullmatch(r"\.partial-\w+-more-one", left)  # of another name
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["one"]


def test_nothing_is_removed_that_is_being_written(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / ".partial-17-checkpoint.keras").write_text("left by version 0.1.0")
    with atomic_path(tmp_path / "model.keras") as one, atomic_path(tmp_path / "model.keras") as two:
        one.write_text("one")
        remove_leftovers(tmp_path)
        two.write_text("two")
    assert names(tmp_path) == ["model.keras", "run.json"]
    assert (tmp_path / "model.keras").read_text() == "one"  # the last to be done
    remove_leftovers(tmp_path / "not there")


def test_threads_that_replace_one_folder_leave_one_of_theirs(tmp_path):
    write_folder(tmp_path / "one", "first")
    threads = [
        threading.Thread(
            target=lambda: [write_folder(tmp_path / "one", "x" * 99) for _ in range(20)]
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        restore_folder(tmp_path / "one")  # as a reader does
        time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert contents(tmp_path) == {"one/a.txt": b"x" * 99}


@pytest.mark.parametrize("error", [None, TfbnoodError("damaged"), FileNotFoundError("gone")])
def test_a_folder_that_others_replace_is_read_again(tmp_path, error):
    place = tmp_path / "one"
    write_folder(place, "old")
    found = []

    def read():
        found.append((place / "a.txt").read_text())
        if len(found) == 1:
            write_folder(place, "new")  # as another process would
            if error:
                raise error
        return found[-1]

    assert read_whole(place, read) == "new"
    assert found == ["old", "new"]


def test_an_error_about_a_folder_that_nobody_replaces_is_raised(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "none", lambda: (tmp_path / "none" / "a.txt").read_text())
    write_folder(tmp_path / "one", "old")
    with pytest.raises(TfbnoodError, match="damaged"):
        read_whole(tmp_path / "one", lambda: (_ for _ in ()).throw(TfbnoodError("damaged")))


def test_names_are_those_in_a_folder_or_none(tmp_path):
    assert list_names(tmp_path / "one") is None
    write_folder(tmp_path / "one", "old")
    assert list_names(tmp_path / "one") == {"a.txt"}
    with pytest.raises(NotADirectoryError):
        list_names(tmp_path / "one" / "a.txt")


def test_leftovers_are_removed_while_others_write(tmp_path):
    writer = threading.Thread(
        target=lambda: [write_folder(tmp_path / "one", "x") for _ in range(300)]
    )
    writer.start()
    while writer.is_alive():
        remove_leftovers(tmp_path)
    writer.join()
    assert contents(tmp_path) == {"one/a.txt": b"x"}


def test_a_writer_that_is_done_does_not_bring_back_what_it_has_replaced(tmp_path, monkeypatch):
    write_folder(tmp_path / "one", "old")
    replace = files._replace_folder

    def replace_before_another_writer_starts(temporary, path):
        replace(temporary, path)
        path.rename(tmp_path / "taken")  # the first of the other's two renames

    monkeypatch.setattr(files, "_replace_folder", replace_before_another_writer_starts)
    write_folder(tmp_path / "one", "new")
    assert contents(tmp_path) == {"taken/a.txt": b"new"}


def test_two_exporters_at_once_get_two_versions(tmp_path):
    (tmp_path / "7").mkdir()
    code = """
import sys, time
from tfbnood._core.files import publish_version, staging_folder
with staging_folder(sys.argv[1]) as folder:
    folder.mkdir()
    (folder / "saved_model.pb").write_text(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    print(publish_version(folder, sys.argv[1]).name)
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for text in "ab"
    ]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    assert version_folders(tmp_path) == {}
    published = [process.communicate("\n")[0].strip() for process in processes]
    assert sorted(published) == ["8", "9"]
    assert [(tmp_path / name / "saved_model.pb").read_text() for name in published] == ["a", "b"]
    assert names(tmp_path) == ["7", "8", "9"]


def test_a_version_is_a_number_with_a_saved_model(tmp_path):
    assert next_version(tmp_path / "nothing") == 1
    assert not is_base(tmp_path / "nothing")
    for name in ("1", "03", "12", "x1", "1.5", "٣", "9" * 30, ".partial-5"):
        (tmp_path / name).mkdir()
    assert not is_base(tmp_path)
    assert next_version(tmp_path) == 13  # also where no server would load it
    for name in ("1", "03", "x1", "٣", "9" * 30):
        (tmp_path / name / "saved_model.pb").touch()
    assert version_folders(tmp_path) == {1: tmp_path / "1", 3: tmp_path / "03"}
    assert is_base(tmp_path)
    assert not is_base(tmp_path / "1")


def test_what_the_system_refuses_is_a_plain_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TfbnoodError, match=r"run\.json cannot be written \(Not a directory\)"):
        write_json(tmp_path / "file" / "deep" / "run.json", {})
    with pytest.raises(TfbnoodError, match=r"cannot be written \(File name too long\)"):
        write_json(tmp_path / ("x" * 300), {})


def test_a_full_disk_is_one_line_and_the_old_file_stays(tmp_path):
    with mounted(tmp_path / "disk", "size=64k") as disk:
        write_json(disk / "a.json", "old")
        fill(disk, leave=8192)
        with pytest.raises(TfbnoodError, match=r"a\.json cannot be written \(No space left on dev"):
            write_json(disk / "a.json", "x" * 50_000)
        assert json.loads((disk / "a.json").read_text()) == "old"
        assert names(disk) == ["a.json", "filling"]
        (disk / "filling").unlink()
        write_json(disk / "a.json", "x" * 10_000)


def test_a_read_only_folder_is_one_line_and_the_old_files_stay(tmp_path):
    with mounted(tmp_path / "disk", "size=64k") as disk:
        write_json(disk / "a.json", "old")
        write_folder(disk / "one", "old")
        before = contents(disk)
        make_read_only(disk)
        for act in (
            lambda: write_json(disk / "a.json", "new"),
            lambda: write_folder(disk / "one", ""),
        ):
            with pytest.raises(TfbnoodError, match=r"cannot be written \(Read-only file system\)"):
                act()
        assert contents(disk) == before


def test_json_is_readable_by_people(tmp_path):
    content = {"data": "8×8", "list": [1, 2.5, None]}
    write_json(tmp_path / "run.json", content)
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert "8×8" in text
    assert text.endswith("}\n")


def test_the_hash_of_a_file_is_that_of_its_content(tmp_path):
    content = os.urandom(3_000_001)
    (tmp_path / "file").write_bytes(content)
    assert file_sha256(tmp_path / "file") == hashlib.sha256(content).hexdigest()


def test_a_lock_excludes_threads_and_is_gone_afterwards(tmp_path):
    with lock(tmp_path / "lock"):
        with pytest.raises(BlockingIOError), lock(tmp_path / "lock"):
            pass
        assert (tmp_path / "lock").exists()
    with lock(tmp_path / "lock"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_file_is_gone_leaves_the_next_holder_s(tmp_path):
    with lock(tmp_path / "lock"):
        (tmp_path / "lock").unlink()  # by one that took it for a leftover
        second = lock(tmp_path / "lock")
        second.__enter__()
    assert (tmp_path / "lock").exists()
    second.__exit__(None, None, None)
    assert not (tmp_path / "lock").exists()


def test_a_lock_counts_when_many_want_it(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(200):
            try:
                with lock(tmp_path / "lock"):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
            except BlockingIOError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
