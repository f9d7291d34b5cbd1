"""What benchmarks share: calls in turns, processes of their own, and what a result file states.

Other Pythons run parts of it, such as alibi-detect's: it imports the package only to write a file.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

__all__ = [
    "ROOT",
    "Stopwatch",
    "last_json",
    "medians",
    "peak_mb",
    "run_child",
    "take_turns",
    "write_result",
]

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Threads that wait for each other by spinning count as CPU time, and the more so the busier the machine is.
_LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP")
ONE_THREAD = {f"{library}_THREADS": "1" for library in _LIBRARIES}


class Stopwatch:
    """Seconds by the clock and of the processor, all threads together, since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        wall, cpu = self._began
        return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def take_turns(
    ways: Mapping[str, Callable[[], object]], turns: int, *, warm: int = 1
) -> dict[str, dict[str, float]]:
    """Medians of `seconds` and `cpu_seconds` of each call; the first `warm` turns, which compile, do not count."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for turn in range(warm + turns):
        for way, call in ways.items():
            watch = Stopwatch()
            call()
            if turn >= warm:
                found[way].append(watch.read())
    return {way: medians(rows) for way, rows in found.items()}


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each column."""
    return {name: median(row[name] for row in rows) for name in rows[0]}


def run_child(
    *command: str, threads: int | None = None, **environment: str
) -> tuple[str, dict[str, float]]:
    """What a process prints, and its `seconds` and `cpu_seconds` with everything, from start to end.

    Args:
        *command: of the process; a Python finds the modules of this checkout.
        threads: 1 for one thread in every library. Defaults to theirs.
        **environment: what else to set.
    """
    path = os.pathsep.join([str(ROOT / "tools" / "bench"), str(ROOT)])
    settings = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": path}
    settings |= ONE_THREAD if threads == 1 else {}
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**settings, **environment},
        # Python looks for modules where it is started, before all else.
        cwd=tempfile.gettempdir(),
    )
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} failed:\n{done.stderr[-3000:]}")
    cpu = sum(after[2:4]) - sum(before[2:4])
    return done.stdout, {"seconds": time.perf_counter() - began, "cpu_seconds": cpu}


def last_json(printed: str) -> Any:
    """What the last line of a process says."""
    return json.loads(printed.splitlines()[-1])


def peak_mb() -> float:
    """The largest resident set of this process so far.

    Not `ru_maxrss`: that begins with what the parent had when it started the process.
    """
    status = pathlib.Path("/proc/self/status").read_text("utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def write_result(
    path: str | None, result: Mapping[str, Any], more_versions: Mapping[str, str] | None = None
) -> None:
    """Writes a result file with command, versions and machine class, unless there is no path."""
    if not path:
        return
    from tfbnood._core.files import write_json
    from tfbnood._core.provenance import machine, versions

    script = pathlib.Path(sys.argv[0]).resolve().relative_to(ROOT)
    # Folders of this machine are nobody's business.
    words = [word.rpartition("/")[2] if word.startswith("/") else word for word in sys.argv[1:]]
    about = {
        "command": shlex.join(["python", str(script), *words]),
        "versions": {**result.get("versions", {}), **versions(), **(more_versions or {})},
        "machine": machine(),
    }
    write_json(path, {**result, **about})
