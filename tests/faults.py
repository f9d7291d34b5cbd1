"""Real faults: processes that are killed at a chosen point, and disks that are full or read-only."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

TESTS = pathlib.Path(__file__).parent


def run_python(code: str, *arguments: object, **options) -> subprocess.CompletedProcess:
    """Runs code in a process of its own that can import what tests can."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def assert_killed(process: subprocess.CompletedProcess) -> None:
    assert process.returncode == -signal.SIGKILL, process.stderr


@contextlib.contextmanager
def mounted(folder: pathlib.Path, *options: str) -> Iterator[pathlib.Path]:
    """A file system of its own at a new folder, e.g. with `size=1m`; skips where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount the small disk of this test")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_read_only(disk: pathlib.Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def fill(disk: pathlib.Path, leave: int = 0) -> None:
    """Fills a disk up to some bytes."""
    with contextlib.suppress(OSError), open(disk / "filling", "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    if leave:
        size = (disk / "filling").stat().st_size
        os.truncate(disk / "filling", size - leave)


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
