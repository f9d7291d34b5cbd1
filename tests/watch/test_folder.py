"""A folder is followed file by file: whole files only, each once, in the order of their times."""

import os
import shutil
import time

import numpy as np
import pytest
from PIL import Image
from watching import SHAPE, events, opened, pixels, put, score

from tfbnood.watch import folder as module
from tfbnood.watch.folder import FolderSource


@pytest.fixture
def watched(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def drain(session, source, seconds=0.0, until=None):
    """Takes what comes, for a while or until something holds; the keys in order."""
    keys = []
    end = time.monotonic() + (60 if until else seconds)
    while True:
        items = source.poll(0.05)
        keys += [one["key"] for one in session.take(items)]
        late = time.monotonic() > end
        if source.finished or (until(keys) if until else not items and late) or (until and late):
            return keys


def test_files_come_by_time_then_name_also_from_subfolders(watched, tmp_path):
    for place, name in enumerate(["b.png", "sub/deep/c.jpg", "a.png"]):
        put(watched / name, pixels(100, place), 1000 + place)
    put(watched / "twin.png", pixels(90), 1002)
    (watched / "notes.txt").write_text("no image")
    (watched / ".hidden.png").write_bytes(b"")
    (watched / ".git").mkdir()
    put(watched / ".git" / "x.png", pixels(100), 1)
    with opened(tmp_path / "out") as session:
        source = FolderSource(watched, SHAPE, score, session.tally, once=True)
        assert drain(session, source) == ["b.png", "sub/deep/c.jpg", "a.png", "twin.png"]
    expected = [pixels(100, place).mean() for place in range(3)]
    assert [one["score"] for one in events(tmp_path / "out")] == [*expected, pixels(90).mean()]


def test_a_file_that_is_being_written_is_read_when_it_is_whole(watched, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 60.0)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)).save(
        tmp_path / "whole.png"
    )
    whole = (tmp_path / "whole.png").read_bytes()
    with opened(tmp_path / "out") as session:
        source = FolderSource(watched, SHAPE, score, session.tally, interval=0.05)
        with open(watched / "slow.png", "wb", buffering=0) as file:
            for start in range(0, len(whole), 1500):
                file.write(whole[start : start + 1500])
                assert drain(session, source, 0.25) == [] or file.tell() == len(whole)
        put(watched / "quick.png", pixels(100))
        drain(session, source, until=lambda _: session.tally.images == 2)
        assert drain(session, source, 0.3) == []
    assert sorted(one["key"] for one in events(tmp_path / "out")) == ["quick.png", "slow.png"]
    assert not any("unreadable" in one for one in events(tmp_path / "out"))


def test_what_is_not_an_image_is_counted_once_as_such(watched, tmp_path):
    (watched / "broken.png").write_bytes(b"\x89PNG nothing")
    (watched / "empty.jpg").write_bytes(b"")
    for name in ("broken.png", "empty.jpg"):
        os.utime(watched / name, (1000, 1000))
    put(watched / "good.png", pixels(100), 1001)
    for _ in range(2):
        with opened(tmp_path / "out") as session:
            drain(session, FolderSource(watched, SHAPE, score, session.tally, once=True))
            assert (session.tally.images, session.tally.unreadable) == (1, 2)
    reasons = {one["key"]: one.get("unreadable") for one in events(tmp_path / "out")}
    unknown = "not an image of a known format"
    assert reasons == {"broken.png": unknown, "empty.jpg": "empty", "good.png": None}


def test_a_young_file_that_cannot_be_decoded_is_tried_again(watched, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 3600.0)
    (watched / "late.png").write_bytes(b"\x89PNG")
    with opened(tmp_path / "out") as session:
        source = FolderSource(watched, SHAPE, score, session.tally, interval=0.05)
        assert drain(session, source, 0.4) == []
        monkeypatch.setattr(module, "_PATIENCE", 0.4)  # not earlier: a busy machine is slow
        drain(session, source, until=lambda keys: keys == ["late.png"])
        assert session.tally.unreadable == 1
        put(watched / "late.png", pixels(100))
        drain(session, source, until=lambda keys: keys == ["late.png"])
        assert session.tally.images == 1


def test_a_file_that_changes_is_a_new_image_and_one_that_is_gone_is_forgotten(watched, tmp_path):
    with opened(tmp_path / "out") as session:
        source = FolderSource(watched, SHAPE, score, session.tally, interval=0.01)
        put(watched / "latest.png", pixels(100, 1), 1000)
        assert drain(session, source, until=len) == ["latest.png"]
        put(watched / "latest.png", pixels(120, 2), 1001)
        assert drain(session, source, until=len) == ["latest.png"]
        assert drain(session, source, 0.3) == []
        assert len(session.tally._seen) == 1
        (watched / "latest.png").unlink()
        drain(session, source, 0.3)
        assert len(session.tally._seen) == 0


def test_a_folder_that_goes_away_and_comes_back(watched, tmp_path):
    put(watched / "one.png", pixels(100), 1000)
    with opened(tmp_path / "out") as session:
        source = FolderSource(watched, SHAPE, score, session.tally, interval=0.01)
        assert drain(session, source, until=len) == ["one.png"]
        shutil.move(watched, tmp_path / "away")
        drain(session, source, until=lambda _: source.missing)
        assert source.missing == "no such file or directory"
        put(tmp_path / "away" / "two.png", pixels(110), 1001)
        shutil.move(tmp_path / "away", watched)
        assert drain(session, source, until=len) == ["two.png"]
        assert source.missing == ""
