"""`tfbnood serve` as a process of its own: what it says, and how it ends while it loads and while it serves."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOW = ROOT / "savedmodels" / "digits_realnvp"  # takes TensorFlow many seconds to load
AT_ONCE = 20  # seconds: less than the load, and enough for a busy machine


class Process:
    """`tfbnood serve --stand-in` and the lines that it says."""

    def __init__(self, path):
        command = [sys.executable, "-m", "tfbnood", "serve", str(path), "--stand-in"]
        self.process = subprocess.Popen(
            [*command, "--port", "0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self.text = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.text += line

    def wait_for(self, text, seconds=120):
        end = time.monotonic() + seconds
        while text not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < end, self.text
            time.sleep(0.01)

    def end(self, number):
        """The exit code after a signal, and the seconds that it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join()
        return code, time.monotonic() - began


@pytest.fixture
def start():
    started = []

    def start(path):
        started.append(Process(path))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        each._reader.join()
        each.process.stderr.close()


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.parametrize("moment", ["starting TensorFlow", "loading digits_realnvp version 1 …"])
def test_a_signal_while_loading_ends_the_process_at_once(start, number, expected, moment):
    process = start(SLOW)
    process.wait_for(moment)
    time.sleep(0.3)  # by now it is inside TensorFlow
    code, seconds = process.end(number)
    assert code == expected
    assert seconds < AT_ONCE
    assert "Traceback" not in process.text
    assert "loaded" not in process.text  # it had not finished loading


def test_a_signal_while_a_new_version_is_loaded_does_not_wait_for_it(start, factor_base):
    base, _ = factor_base
    process = start(base)
    process.wait_for("listening at")
    url = next(
        line.split(" at ")[1] for line in process.text.splitlines() if "serving factor" in line
    )
    request = urllib.request.Request(f"{url}:predict", b'{"instances": [2]}')
    with urllib.request.urlopen(request, timeout=60) as response:
        assert json.load(response) == {"predictions": [2.0]}
    shutil.copytree(SLOW / "1", base / ".2")
    (base / ".2").rename(base / "2")
    process.wait_for("loading factor version 2 …")
    code, seconds = process.end(signal.SIGINT)
    assert code == 0
    assert seconds < AT_ONCE
    assert "Traceback" not in process.text
    assert "loaded factor version 2" not in process.text
