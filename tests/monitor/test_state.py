"""A monitor resumes bit for bit, also after a kill; what is damaged is refused."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from faults import TESTS

from tfbnood.errors import DataError
from tfbnood.monitor import Monitor

SETTINGS = {"run_length": 2000, "seed": 3, "fdr": 0.1, "capacity": 700, "history": 150}


def scores_of(length=900):
    rng = np.random.default_rng(0)
    held_out, stream = rng.normal(size=400).round(2), rng.normal(size=length).round(2)
    stream[600:] += 3
    return held_out, stream


def tell(readings):
    return [
        getattr(readings, name).tobytes()
        for name in ("stream_p_value", "log_evidence", "alarm", "discovery")
    ]


@pytest.mark.parametrize("cut", [0, 30, 64, 500, 650])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_saved_monitor_goes_on_bit_for_bit(cut, grouped, tmp_path):
    held_out, stream = scores_of()
    groups = (np.arange(400) % 3, np.arange(900) % 4) if grouped else (None, None)

    def update(monitor, rows):
        some = None if groups[1] is None else groups[1][rows]
        return tell(monitor.update(scores=stream[rows], groups=some, keys=np.arange(900)[rows]))

    whole = Monitor(held_out, groups=groups[0], **SETTINGS)
    update(whole, slice(0, cut))
    whole.save(tmp_path / "monitor")
    loaded = Monitor.load(tmp_path / "monitor")
    assert update(whole, slice(cut, 900)) == update(loaded, slice(cut, 900))
    assert whole.alarm
    assert (loaded.since, loaded.share, loaded.worst) == (whole.since, whole.share, whole.worst)
    whole.restart(forget=True)
    loaded.restart(forget=True)
    assert update(whole, slice(0, 200)) == update(loaded, slice(0, 200))


WRITER = """
import signal, sys, numpy as np
sys.path.insert(0, sys.argv[2])
from test_state import SETTINGS, scores_of
from tfbnood.monitor import Monitor
held_out, stream = scores_of(9000)
monitor = Monitor(held_out, **SETTINGS)
print("ready", flush=True)
for start in range(0, 9000, 3):
    monitor.update(scores=stream[start : start + 3], keys=range(start, start + 3))
    monitor.save(sys.argv[1])
signal.pause()  # It ends by a kill, however late that comes.
"""


def test_a_killed_process_leaves_a_monitor_that_resumes_bit_for_bit(tmp_path):
    held_out, stream = scores_of(9000)
    counts = []
    for seconds in (0.05, 0.13, 0.3):
        folder = tmp_path / str(seconds)
        command = [sys.executable, "-c", WRITER, str(folder), str(pathlib.Path(__file__).parent)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(TESTS), "PATH": ""}
        )
        assert process.stdout.readline() == b"ready\n"
        while not (folder / "monitor.json").exists():
            time.sleep(0.005)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        resumed = Monitor.load(folder)
        counts.append(resumed.count)
        whole = Monitor(held_out, **SETTINGS)
        whole.update(scores=stream[: resumed.count], keys=range(resumed.count))
        end = min(resumed.count + 1500, 9000)
        rest = {"scores": stream[resumed.count : end], "keys": range(resumed.count, end)}
        assert tell(resumed.update(**rest)) == tell(whole.update(**rest))
        assert (resumed.since, resumed.share, resumed.worst) == (
            whole.since,
            whole.share,
            whole.worst,
        )
        resumed.save(folder)
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    # Not all of them: on a busy machine a kill may come after the last image.
    assert 0 < min(counts) < 9000


class Detector:
    """Scores an image by its first pixel."""

    def __init__(self, scores):
        self.calibration = self
        self.image_scores = {1: np.sort(scores)}

    def null_of_images(self, count):
        return self.image_scores[1]

    def score(self, images):
        return images[:, 0, 0, 0].astype(float)


def test_a_loaded_monitor_takes_images_with_the_same_detector_only(tmp_path):
    detector = Detector(np.arange(40.0))
    Monitor(detector).save(tmp_path / "monitor")
    images = np.zeros((2, 1, 1, 1), np.uint8)
    assert len(Monitor.load(tmp_path / "monitor", source=detector).update(images)) == 2
    with pytest.raises(DataError, match="images need a monitor with a detector"):
        Monitor.load(tmp_path / "monitor").update(images)
    with pytest.raises(
        DataError, match=r"source must have the held-out scores .*Received: 41 other"
    ):
        Monitor.load(tmp_path / "monitor", source=Detector(np.arange(41.0)))


def damage_json(folder):
    (folder / "monitor.json").write_text("{")


def damage_arrays(folder):
    content = (folder / "arrays.npz").read_bytes()
    (folder / "arrays.npz").write_bytes(content[:-50])


def lose_arrays(folder):
    (folder / "arrays.npz").unlink()


def change_format(folder):
    content = json.loads((folder / "monitor.json").read_text())
    (folder / "monitor.json").write_text(json.dumps({**content, "format": 99}))


def lose_a_value(folder):
    content = json.loads((folder / "monitor.json").read_text())
    del content["plain"]
    (folder / "monitor.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_json, "cannot be loaded: it is damaged"),
        (damage_arrays, "the hash of arrays.npz does not match"),
        (lose_arrays, "cannot be loaded: it is damaged"),
        (change_format, "must have format 1"),
        (lose_a_value, "cannot be loaded: it is damaged"),
    ],
)
def test_a_damaged_folder_is_refused(damage, message, tmp_path):
    Monitor(np.arange(9.0)).save(tmp_path / "monitor")
    damage(tmp_path / "monitor")
    with pytest.raises(DataError, match=message):
        Monitor.load(tmp_path / "monitor")


def test_a_folder_of_something_else_is_neither_read_nor_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="folder must be new, or hold a monitor"):
        Monitor(np.arange(9.0)).save(tmp_path)
    with pytest.raises(DataError, match="folder must hold a saved monitor"):
        Monitor.load(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_saved_monitor_is_replaced_by_the_next(tmp_path):
    monitor = Monitor(np.arange(9.0))
    for count in (1, 2):
        monitor.update(scores=[1.0])
        monitor.save(tmp_path / "monitor")
        assert Monitor.load(tmp_path / "monitor").count == count
    assert sorted(path.name for path in tmp_path.iterdir()) == ["monitor"]
