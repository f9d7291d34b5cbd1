"""Lines of standard input: paths of files, or scores."""

import io
import os

import numpy as np
from watching import SHAPE, events, opened, pixels, put, score

from tfbnood.watch.lines import LineSource, parse_score, path_reader, score_reader
from tfbnood.watch.tally import Tally


def read_all(session, source):
    while not source.finished:
        session.take(source.poll(1.0))


def as_scores(lines):
    return [parse_score(one) for one in lines]


def test_paths_are_scored_in_their_order_and_each_file_once(tmp_path):
    names = [str(tmp_path / f"{row}.png") for row in (3, 1, 2)]
    for row, name in enumerate(names):
        put(tmp_path / os.path.basename(name), pixels(100 + row, row))
    text = "\n".join([*names, str(tmp_path / "missing.png"), "", names[0], str(tmp_path)])
    for _ in range(2):  # the same list again, as after a kill
        with opened(tmp_path / "out") as session:
            reader = path_reader(SHAPE, score)
            read_all(session, LineSource(io.StringIO(text), reader, session.tally))
    found = events(tmp_path / "out")
    scored = [one for one in found if "score" in one]
    assert [one["key"] for one in scored] == names
    assert [one["score"] for one in scored] == [pixels(100 + row, row).mean() for row in range(3)]
    missing = [one["unreadable"] for one in found if one["key"].endswith("missing.png")]
    assert missing == ["no such file or directory"] * 2  # It may be there by the second time.


def test_bare_scores_always_count_and_keyed_ones_once(tmp_path):
    lines = [
        "100",
        "100.5",
        '{"key": "a", "score": 90}',
        '{"key": "a", "score": 90}',
        "1e400",
        "nan",
    ]
    lines += ["many", "[1]", '{"key": "b"}', "true", '{"score": 7}']
    with opened(tmp_path / "out") as session:
        read_all(session, LineSource(io.StringIO("\n".join(lines)), as_scores, session.tally))
    found = events(tmp_path / "out")
    assert [one["score"] for one in found if "score" in one] == [100.0, 100.5, 90.0, 7.0]
    unreadable = [one["key"] for one in found if "unreadable" in one]
    assert unreadable == ["1e400", "nan", "many", "[1]", "b", "true"]


def test_a_detector_within_clusters_needs_the_group_of_a_score():
    lines = ['{"score": 1, "group": 2}', '{"score": 1}', "1", '{"score": 1, "group": "a"}']
    found = score_reader(True)(lines)
    assert [one.group for one in found] == [2, None, None, None]
    assert [bool(one.unreadable) for one in found] == [False, True, True, True]
    assert [one.group for one in score_reader(False)(lines)] == [None] * 4


def test_a_reader_waits_for_lines_and_not_for_full_chunks(tmp_path):
    read, write = os.pipe()
    with os.fdopen(read) as stream, opened(tmp_path / "out") as session:
        source = LineSource(stream, as_scores, session.tally)
        assert source.poll(0.05) == []
        os.write(write, b"101\n102\n")
        assert [one.score for one in source.poll(60.0)] in ([101.0], [101.0, 102.0])
        os.close(write)
        while not source.finished:
            source.poll(0.1)


def test_ids_of_endless_lines_are_bounded(monkeypatch):
    monkeypatch.setattr("tfbnood.watch.tally._MOST_SEEN", 100)
    tally = Tally()
    for row in range(1000):
        tally.remember(f"{row:x}")
        tally.forget_oldest()
        assert len(tally._seen) <= 110
    assert all(tally.has(f"{row:x}") for row in range(901, 1000))
    assert np.mean([tally.has(f"{row:x}") for row in range(800)]) == 0
