"""Peak memory of a detector over data sets of any length, and how much of reading is hidden behind scoring.

    .venv/bin/python tools/bench/streams.py --out results/streams.json

Every call with every number of images is a process of its own; its peak is the largest resident set. Images are 1,000
of CIFAR-10 again and again, as new arrays of 100: 50,000 of them are 154 MB, which would show. `growth_MB` is the peak
over the most images minus that over the fewest; `fit` samples 10,000 images and grows up to there.

For the overlap, JPEG files of 640×640 are read, scored, and both at once: `hidden` is the share of the shorter of the
two that costs no time, the median of the turns. `waits` has a source that only waits, such as a network, whose waiting
can be hidden on any machine that is otherwise idle.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from measuring import peak_mb, run_child

from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data import load

SEED = 0
STATISTIC = "pixel_pca"
CALLS = ("fit", "calibrate", "score", "predict", "p_values", "evaluate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[1000, 10_000, 50_000])
    parser.add_argument("--calls", nargs="*", choices=CALLS, default=list(CALLS))
    parser.add_argument("--files", type=int, default=512, help="to read (default: 512)")
    parser.add_argument("--turns", type=int, default=3, help="of reading them (default: 3)")
    parser.add_argument("--out", help="result file, JSON; what it has already stays in it")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        peak(arguments.one[0], int(arguments.one[1]), arguments.one[2])
        return
    result: dict[str, Any] = {"peak_MB": {}}
    if arguments.out and os.path.exists(arguments.out):
        result = json.loads(pathlib.Path(arguments.out).read_text("utf-8"))
    result |= {"data": "cifar10", "statistic": STATISTIC, "seed": SEED}
    result |= {"versions": versions(), "machine": machine()}

    def keep() -> None:
        if arguments.out:  # after every part: a run takes minutes
            write_json(arguments.out, result)

    with tempfile.TemporaryDirectory() as folder:
        # A whole data set in the process would hide what grows.
        pool = os.path.join(folder, "pool.npy")
        np.save(pool, load("cifar10").test[:1000])
        for call in arguments.calls:
            peaks = {str(count): in_process(call, count, pool) for count in arguments.counts}
            growth = peaks[str(max(arguments.counts))] - peaks[str(min(arguments.counts))]
            result["peak_MB"][call] = {**peaks, "growth_MB": round(growth, 1)}
            print(f"{call:10}", json.dumps(result["peak_MB"][call]), flush=True)
            keep()
    if arguments.turns:
        result["overlap"] = overlap(arguments.files, arguments.turns)
        print(json.dumps(result["overlap"], indent=2))
        keep()


def in_process(call: str, count: int, pool: str) -> float:
    """Peak of a fresh process in MB."""
    command = (sys.executable, __file__, "--one", call, str(count), pool)
    # glibc's arenas differ from run to run by more than what is measured.
    return round(float(run_child(*command, MALLOC_ARENA_MAX="2")[0]), 1)


def peak(call: str, count: int, file: str) -> None:
    """Makes one call with so many images, and prints the peak in MB."""
    import tfbnood

    pool = np.load(file)
    detector = tfbnood.Detector(None, STATISTIC, reference=pool[:500]).calibrate(pool[500:])

    def images() -> Iterator[np.ndarray]:
        return (pool[start % 1000 :][:100].copy() for start in range(0, count, 100))

    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: detector.fit(images(), seed=SEED),
        "calibrate": lambda: detector.calibrate(images()),
        "score": lambda: detector.score(images()),
        "predict": lambda: detector.predict(images()),
        "p_values": lambda: detector.p_values(images()),
        "evaluate": lambda: tfbnood.evaluate(
            detector, images(), {"inverted": (255 - batch for batch in images())}, seed=SEED
        ),
    }
    calls[call]()
    print(peak_mb())


def overlap(count: int, turns: int) -> dict[str, Any]:
    """Seconds of reading, of scoring and of both at once; of files, and of a source that waits."""
    from PIL import Image

    import tfbnood
    from tfbnood.data.folders import iterate_folder

    pool = load("cifar10").test
    detector = tfbnood.load("cifar10_realnvp")
    some = pool[:64]
    detector.score(some)  # Compiles.
    with tempfile.TemporaryDirectory() as folder:
        for index in range(count):
            image = Image.fromarray(pool[index % len(pool)])
            image.resize((640, 640), 3).save(pathlib.Path(folder, f"{index:06}.jpg"))

        def files() -> Iterator[np.ndarray]:
            return (chunk.images for chunk in iterate_folder(folder, detector.image_shape))

        found = {"files_on_disk": _times(files, detector.score, turns)}

    def waiting() -> Iterator[np.ndarray]:
        for _ in range(10):
            time.sleep(0.2)
            yield some

    found["waits"] = _times(waiting, detector.score, turns)
    return {"detector": "cifar10_realnvp", "files": count, "turns": turns, **found}


def _times(
    source: Callable[[], Iterable[np.ndarray]], score: Callable[[Any], Any], turns: int
) -> dict[str, float]:
    rows = []
    for _ in range(turns):
        began = time.perf_counter()
        arrays = list(source())
        read = time.perf_counter() - began
        began = time.perf_counter()
        score(np.concatenate(arrays))
        scored = time.perf_counter() - began
        began = time.perf_counter()
        score(iter(source()))
        both = time.perf_counter() - began
        rows.append((read, scored, both, (read + scored - both) / min(read, scored)))
    names = ("read_seconds", "score_seconds", "both_seconds", "hidden")
    columns = zip(*rows, strict=True)
    return {
        name: round(statistics.median(values), 3)
        for name, values in zip(names, columns, strict=True)
    }


if __name__ == "__main__":
    main()
