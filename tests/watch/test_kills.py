"""kill -9 at random moments while files arrive: every file is counted once, and the state is the same."""

import contextlib
import random
import signal
import subprocess
import sys
import time

from faults import TESTS, contents, run_python
from watching import events, feed, pixels, put

FOLLOW = "import sys; from watching import follow; follow(sys.argv[1], sys.argv[2])"
FILES, ROUNDS = 240, 8


def count_lines(out):
    """Those of all files; one that is just renamed may count twice or not at all."""
    count = 0
    for path in out.glob("events*.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            count += path.read_bytes().count(b"\n")
    return count


def test_kills_at_random_moments_lose_no_file_and_count_none_twice(tmp_path):
    chance = random.Random(7)
    out, folder = tmp_path / "out", tmp_path / "in"
    folder.mkdir()
    placed = kills = 0
    while placed < FILES or kills < ROUNDS:
        target = count_lines(out) + chance.randrange(1, 30)
        command = [sys.executable, "-c", FOLLOW, str(out), str(folder)]
        process = subprocess.Popen(
            command,
            env={"PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        give_up = time.monotonic() + 60
        # Files arrive while it starts, reads, saves and renames.
        while time.monotonic() < give_up and process.poll() is None:
            if placed < min(FILES, FILES // ROUNDS * (kills + 1)):
                level = 100 if placed < 150 else 180
                put(
                    folder / f"day {placed % 3}" / f"{placed:04d}.png",
                    pixels(level, placed),
                    1000 + placed,
                )
                placed += 1
            time.sleep(chance.random() * 0.02)
            if count_lines(out) >= min(target, FILES):
                break
        time.sleep(chance.random() * 0.05)
        assert process.poll() is None, process.stdout.read()
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        kills += 1
    assert kills >= ROUNDS
    done = run_python(FOLLOW, out, folder, "--once")
    assert done.returncode == 0, done.stderr
    lines = events(out)
    assert [one["line"] for one in lines] == list(range(FILES))
    keys = sorted(one["key"] for one in lines)
    assert keys == sorted(f"day {row % 3}/{row:04d}.png" for row in range(FILES))
    assert {one["key"]: one["score"] for one in lines} == {
        f"day {row % 3}/{row:04d}.png": pixels(100 if row < 150 else 180, row).mean()
        for row in range(FILES)
    }
    assert any("since" in one for one in lines)
    whole = feed(tmp_path / "whole", lines, run_length=500)
    assert contents(out / "state") == contents(whole / "state")
    assert "ALARM" in done.stdout
    assert f"ended: {FILES} images" in done.stdout


def test_the_first_signal_ends_it_in_order(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    put(folder / "one.png", pixels(100), 1000)
    command = [sys.executable, "-c", FOLLOW, str(tmp_path / "out"), str(folder)]
    page = tmp_path / "out" / "timeline.html"
    for number in (signal.SIGINT, signal.SIGTERM):
        page.unlink(missing_ok=True)
        process = subprocess.Popen(
            command, env={"PYTHONPATH": str(TESTS)}, stdout=subprocess.PIPE, text=True
        )
        end = time.monotonic() + 60
        while time.monotonic() < end and not (
            page.exists() and "No change in 1 image" in page.read_text()
        ):
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "ended: 1 image, 0 flagged at 1 %, no alarm: evidence" in said
    assert "resumed: 1 image" in said
    assert not (tmp_path / "out" / ".lock").exists()
    assert 'http-equiv="refresh"' not in page.read_text()
