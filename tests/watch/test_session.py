"""A session counts every item exactly once, through ends of every kind, and its monitor is the same bit for bit."""

import json

import numpy as np
import pytest
from faults import contents, fill, mounted
from watching import events, feed, held_out, opened

from tfbnood.errors import TfbnoodError
from tfbnood.monitor import Monitor
from tfbnood.watch import HeldOut, Item, Session
from tfbnood.watch.journal import Journal
from tfbnood.watch.tally import BUCKETS, POINTS, Tally

SETTINGS = {"run_length": 300, "fdr": 0.1}


def items(count, start=0, seed=0):
    """Usual ones, every tenth unreadable; after 80 outliers."""
    random = np.random.default_rng([seed, start])
    scores = random.normal(100, 10, count) + 40 * (np.arange(start, start + count) >= 80)
    return [
        Item(f"{row}.png", unreadable="truncated", id=f"{row:x}")
        if row % 10 == 3
        else Item(f"{row}.png", float(one), id=f"{row:x}")
        for row, one in enumerate(scores, start)
    ]


def state_of(out):
    return contents(out / "state")


def test_a_line_has_what_the_monitor_found(tmp_path):
    with opened(tmp_path / "out", **SETTINGS) as session:
        session.take(items(120))
    lines = events(tmp_path / "out")
    assert [one["line"] for one in lines] == list(range(120))
    scored = [one for one in lines if "score" in one]
    assert [one["index"] for one in scored] == list(range(len(scored))) == list(range(108))
    monitor = Monitor(held_out().scores, 300, fdr=0.1)
    found = monitor.update(scores=[one["score"] for one in scored])
    for name in ("p_value", "stream_p_value", "log_evidence", "alarm", "discovery"):
        assert [one[name] for one in scored] == getattr(found, name).tolist()
    null = held_out().scores
    expected = [(1 + (null >= one["score"]).sum()) / 401 for one in scored]
    assert [one["p_value"] for one in scored] == expected
    assert [one["flagged"] for one in scored] == [p <= 0.01 for p in expected]
    (raised,) = [one for one in scored if "since" in one]
    assert raised["index"] == monitor.alarm_index == int(np.argmax(found.alarm))
    assert raised["since"] == [monitor.since.value, monitor.since.low, monitor.since.high]
    assert [one["unreadable"] for one in lines if "score" not in one] == ["truncated"] * 12


def test_an_item_with_a_known_id_is_not_taken_again(tmp_path):
    with opened(tmp_path / "out") as session:
        assert len(session.take([*items(10), *items(10)])) == 10
        assert session.take(items(10)) == []
    with opened(tmp_path / "out") as session:
        assert len(session.take(items(15))) == 5
        # Without an id, an item is always new.
        assert len(session.take([Item("a", 1.0), Item("a", 1.0)])) == 2
    assert len(events(tmp_path / "out")) == 17


@pytest.mark.parametrize("lost", ["nothing", "state", "tally.npz", "both"])
@pytest.mark.parametrize("saved", [0, 40, 100])
def test_what_was_not_saved_is_taken_from_the_journal(saved, lost, tmp_path):
    """The end of a killed process: the journal is whole, the rest is as it was last saved, or lost."""

    class Killed(Exception):
        pass

    out = tmp_path / "out"
    with pytest.raises(Killed), opened(out, **SETTINGS) as session:  # noqa: PT012
        session.take(items(saved))
        session.save()
        session.take(items(120 - saved, saved))
        session.restart(forget=True)
        session.take(items(20, 120))
        raise Killed
    with open(out / "events.jsonl", "ab") as file:
        file.write(b'{"line":141,"time":"2026-')  # half a line
    if lost in ("state", "both"):
        (out / "state" / "monitor.json").write_bytes(b"{")
    if lost in ("tally.npz", "both"):
        (out / "tally.npz").write_bytes(b"PK")
    with opened(out, **SETTINGS) as session:
        assert session.take(items(140 - saved, saved)) == []
        counted = {
            name: getattr(session.tally, name) for name in ("images", "unreadable", "alarms")
        }
    lines = events(out)
    assert len(lines) == 141
    whole = feed(tmp_path / "whole", lines, **SETTINGS)
    assert state_of(out) == state_of(whole)
    again = Tally.load(whole / "tally.npz")
    assert counted == {name: getattr(again, name) for name in counted}
    assert (counted["images"], counted["unreadable"]) == (126, 14)


def test_full_files_are_renamed_and_not_needed_again(tmp_path):
    out = tmp_path / "out"
    for start in range(0, 200, 20):
        with opened(out, **SETTINGS, most_bytes=4000) as session:
            session.take(items(20, start))
    older = sorted(out.glob("events-*.jsonl"))
    assert [one.name for one in older[:2]] == ["events-000001.jsonl", "events-000002.jsonl"]
    lines = events(out)
    assert [one["line"] for one in lines] == list(range(200))
    for one in older:
        one.unlink()
    with opened(out, **SETTINGS, most_bytes=4000) as session:
        assert session.take(items(200)) == []
        assert session.tally.lines == 200
        session.take(items(1, 200))
    assert events(out)[-1]["line"] == 200
    assert state_of(out) == state_of(
        feed(tmp_path / "whole", [*lines, events(out)[-1]], **SETTINGS)
    )


def test_a_lost_state_cannot_be_made_up_when_lines_were_moved_away(tmp_path):
    out = tmp_path / "out"
    with opened(out, most_bytes=4000) as session:
        session.take(items(50))
    with opened(out, most_bytes=4000) as session:
        session.take(items(1, 50))
    (out / "state" / "arrays.npz").unlink()
    with pytest.raises(TfbnoodError, match="must hold the saved monitor"), opened(out):
        pass


def test_a_full_disk_stops_it_with_nothing_half_written(tmp_path):
    with mounted(tmp_path / "disk", "size=600k") as disk:
        out = disk / "out"
        with opened(out, **SETTINGS) as session:
            session.take(items(50))
        fill(disk, leave=8192)
        refused = "events.jsonl cannot be written .No space left on device"
        with pytest.raises(TfbnoodError, match=refused), opened(out, **SETTINGS) as session:  # noqa: PT012
            for start in range(50, 2000, 20):
                session.take(items(20, start))
        text = (out / "events.jsonl").read_bytes()
        assert text.endswith(b"}\n")
        count = len([json.loads(line) for line in text.splitlines()])
        assert 50 <= count < 200
        (disk / "filling").unlink()
        with opened(out, **SETTINGS) as session:
            assert session.tally.lines == count
            for start in range(0, 200, 20):
                session.take(items(20, start))
        lines = events(out)
        assert sorted(one["key"] for one in lines) == sorted(f"{row}.png" for row in range(200))
        assert state_of(out) == state_of(feed(tmp_path / "whole", lines, **SETTINGS))


def test_two_watches_cannot_share_a_folder(tmp_path):
    with (
        opened(tmp_path / "out"),
        pytest.raises(TfbnoodError, match="is in use"),
        opened(tmp_path / "out"),
    ):
        pass


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"run_length": 999}, "run_length=10000 instead of 999"),
        ({"stream": "/elsewhere"}, "stream='' instead of '/elsewhere'"),
        ({"fdr": 0.5}, "fdr=None instead of 0.5"),
    ],
)
def test_other_settings_need_another_folder(tmp_path, changed, said):
    with opened(tmp_path / "out"):
        pass
    with (
        pytest.raises(TfbnoodError, match="out must be a new folder") as error,
        opened(tmp_path / "out", **changed),
    ):
        pass
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_another_detector_and_another_folder_are_refused(tmp_path):
    with opened(tmp_path / "out"):
        pass
    other = HeldOut("other", np.arange(9.0), (4, 4, 1), "mean")
    with (
        pytest.raises(TfbnoodError, match="held_out_sha256"),
        Session.open(tmp_path / "out", other),
    ):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(TfbnoodError, match="new or empty folder"), opened(tmp_path / "mine"):
        pass
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_within_clusters_a_change_of_their_shares_is_no_change(tmp_path):
    random = np.random.default_rng(3)
    levels = np.array([60.0, 100.0, 140.0])
    groups = np.sort(random.integers(0, 3, 600))
    scores = np.concatenate(
        [np.sort(random.normal(levels[one], 5, (groups == one).sum())) for one in range(3)]
    )
    within = HeldOut("within", scores, (4, 4, 1), "mean", groups=groups)
    pooled = HeldOut("pooled", np.sort(scores), (4, 4, 1), "mean")
    stream = random.normal(140, 5, 300)  # of one cluster only
    alarms = {}
    for held, group in ((within, 2), (pooled, None)):
        out = tmp_path / held.name
        for start in (0, 150):  # stopped and resumed in between
            with Session.open(out, held, run_length=300, thin=1) as session:
                rows = enumerate(stream[start : start + 150].tolist(), start)
                session.take([Item(str(row), one, group=group) for row, one in rows])
        alarms[held.name] = session.monitor.alarm
        lines = events(out)
        null = scores if group is None else scores[groups == 2]
        expected = [(1 + (null >= one).sum()) / (len(null) + 1) for one in stream]
        assert [one["p_value"] for one in lines] == expected
        assert (
            held.p_values(stream, None if group is None else np.full(300, 2)).tolist() == expected
        )
    assert alarms == {"within": False, "pooled": True}


def test_autocorrelation_is_noted_and_not_a_warning(tmp_path):
    random = np.random.default_rng(0)
    scores = np.repeat(random.normal(100, 10, 40), 16)
    with opened(tmp_path / "out") as session:
        session.take([Item(str(row), float(one)) for row, one in enumerate(scores)])
        (note,) = session.notes
    assert "scores of neighbouring images are correlated" in note


def test_a_tally_counts_p_values_and_thins_its_timeline(tmp_path):
    random = np.random.default_rng(0)
    p_values = np.ceil(random.random(5000) * 1000) / 1000
    evidence = random.normal(size=5000)
    tally = Tally()
    for row, (p_value, one) in enumerate(zip(p_values.tolist(), evidence.tolist(), strict=True)):
        line = {
            "line": row,
            "index": row,
            "time": "2026-11-18T03:00:00+00:00",
            "key": "",
            "score": 0.0,
        }
        tally.add({**line, "p_value": p_value, "log_evidence": one, "alarm": False})
    tally.save(tmp_path / "tally.npz")
    tally = Tally.load(tmp_path / "tally.npz")
    expected, _ = np.histogram(p_values, [0, *np.add(BUCKETS, 1e-9)])
    assert tally.buckets.tolist() == expected.tolist()
    assert tally.p_value_sum == pytest.approx(p_values.sum())
    assert list(tally.recent) == p_values[-1000:].tolist()
    assert tally.stride == 8
    assert len(tally.points) == 625 <= POINTS
    assert [point[2] for point in tally.points] == evidence.reshape(625, 8).max(axis=1).tolist()


def test_a_damaged_journal_is_refused_in_one_line(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(b'{"line":0}\nnonsense\n')
    with pytest.raises(TfbnoodError, match="must hold numbered lines of JSON") as error:
        Journal(tmp_path)
    assert "\n" not in str(error.value)


def test_names_that_are_not_utf_8_survive(tmp_path):
    with opened(tmp_path / "out") as session:
        session.take([Item("caf\udce9.png", 150.0, id="1")])
    with opened(tmp_path / "out") as session:
        assert session.monitor.worst[0].key == "caf\udce9.png"
    assert events(tmp_path / "out")[0]["key"] == "caf\udce9.png"
