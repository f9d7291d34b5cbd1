"""Apache Beam beside scoring in process: images per second at equal cores, and memory over many images.

    .venv/bin/python tools/bench/beam.py --out results/bench_beam.json

Needs `pip install "tfbnood[beam]"`. Each way scores the same PNG files in processes of its own, in turns. Images per
second are between the first and the last score, when all workers have their model; `seconds` are all, with the start of
Python, TensorFlow and workers. `cpu` has milliseconds of processor time per image, by the difference between all files
and a quarter of them, and hardly depends on what else the machine does. Memory is the largest sum of what all processes
of a way hold, with pages that they share counted in each.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from PIL import Image

from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data import load

ROOT = pathlib.Path(__file__).resolve().parents[2]

# As `tfbnood score` does with a folder: threads read and decode ahead of the model.
IN_PROCESS = """
import json, os, sys, time
import tensorflow as tf
from tfbnood.beam import find_export
from tfbnood.data.folders import iterate_folder
base, folder, out = sys.argv[1:]
export = find_export(base)
module = tf.saved_model.load(export.version)
score = module.signatures["uint8"]
with open(f"{out}/scores-0.jsonl", "w") as file:
    for chunk in iterate_folder(folder, export.image_shape):
        found = {k: v.numpy().tolist() for k, v in score(images=tf.constant(chunk.images)).items()}
        for path, *values in zip(chunk.paths, *found.values()):
            record = {"key": str(path), **dict(zip(found, values))}
            file.write(json.dumps({**record, "time": time.time(), "worker": os.getpid()}) + "\\n")
"""
BEAM = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from tfbnood.beam import ScoreImages

def stamped(record):
    import json, os, time
    return json.dumps({**record, "time": time.time(), "worker": os.getpid()})

if __name__ == "__main__":
    base, folder, out, *options = sys.argv[1:]
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *options]))
    scored = pipeline | ScoreImages(base, folder)
    scored.scores | beam.Map(stamped) | beam.io.WriteToText(f"{out}/scores")
    pipeline.run().wait_until_finish()
"""
TWO_WORKERS = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "in process": (IN_PROCESS, ()),
    "Beam, 1 worker in the process": (BEAM, ()),
    "Beam, 2 worker processes": (BEAM, TWO_WORKERS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--detector", default="fashion_mnist_realnvp")
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--images", type=int, default=4000, help="to time (default: 4000)")
    parser.add_argument("--turns", type=int, default=3, help="of every way (default: 3)")
    parser.add_argument("--memory-detector", default="digits_realnvp")
    parser.add_argument("--memory-data", default="digits")
    parser.add_argument("--memory-images", type=int, default=20000, help="default: 20000")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"detector": arguments.detector, "images": arguments.images}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        counts = (arguments.images // 4, arguments.images)
        folders = [make_files(folder, arguments.data, count) for count in counts]
        result["ways"] = time_ways(arguments.detector, folders, counts, arguments.turns)
        counts = (arguments.memory_images // 10, arguments.memory_images)
        folders = [make_files(folder, arguments.memory_data, count) for count in counts]
        result["memory"] = {
            "detector": arguments.memory_detector,
            **memory(arguments.memory_detector, folders, counts),
        }
    alone = result["ways"]["in process"]
    result["ratios"] = {
        way: {
            "images_per_second": row["images_per_second"] / alone["images_per_second"],
            "images_per_cpu_second": alone["cpu_ms"] / row["cpu_ms"],
        }
        for way, row in result["ways"].items()
        if row is not alone
    }
    print(json.dumps({key: result[key] for key in ("ways", "ratios", "memory")}, indent=2))
    if arguments.out:
        write_json(arguments.out, {**result, "versions": _versions(), "machine": machine()})


def make_files(folder: pathlib.Path, data: str, count: int) -> pathlib.Path:
    """That many PNG files of a data set's test images, a thousand per subfolder; some images occur several times."""
    images = load(data).test
    target = folder / f"{data}-{count}"
    for index in range(count):
        below = target / f"{index // 1000:03}"
        below.mkdir(parents=True, exist_ok=True)
        pixels = images[index % len(images)]
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(
            below / f"{index:06}.png"
        )
    return target


def time_ways(
    detector: str, folders: list[pathlib.Path], counts: tuple[int, int], turns: int
) -> dict[str, dict[str, float]]:
    """Medians over the turns of each way, and the largest difference of a score from that in process."""
    found: dict[str, list[list[dict[str, Any]]]] = {way: [] for way in WAYS}
    for _ in range(turns):
        for way in WAYS:
            found[way].append([run(way, detector, folder) for folder in folders])
    expected = found["in process"][0][1]["scores"]
    more = counts[1] - counts[0]
    rows = {}
    for way, pairs in found.items():
        scores = pairs[0][1]["scores"]
        assert scores.keys() == expected.keys()
        rows[way] = {
            "images_per_second": statistics.median(whole["rate"] for _, whole in pairs),
            "seconds": statistics.median(whole["seconds"] for _, whole in pairs),
            "cpu_ms": 1000
            * statistics.median(whole["cpu"] - part["cpu"] for part, whole in pairs)
            / more,
            # Relative to scores above 1, absolute below: some are close to 0.
            "largest_difference": max(
                abs(scores[key] - expected[key]) / max(1, abs(expected[key])) for key in expected
            ),
        }
    return rows


def rate(lines: list[dict[str, Any]]) -> float:
    """Images per second from when every worker has scored its first batch to when the first one has no more."""
    times: dict[int, list[float]] = {}
    for line in lines:
        times.setdefault(line["worker"], []).append(line["time"])
    begin = max(min(some) for some in times.values())
    end = min(max(some) for some in times.values())
    if end <= begin:  # So few images that one had ended before the other began.
        begin, end = min(map(min, times.values())), max(map(max, times.values()))
    count = sum(begin < moment <= end for some in times.values() for moment in some)
    return count / (end - begin)


def memory(
    detector: str, folders: list[pathlib.Path], counts: tuple[int, int]
) -> dict[str, dict[str, float]]:
    """The largest memory of each way in GB, over a tenth of the images and all of them."""
    return {
        way: {
            f"GB_over_{count}_images": run(way, detector, folder)["bytes"] / 1e9
            for count, folder in zip(counts, folders, strict=True)
        }
        for way in WAYS
    }


def run(way: str, detector: str, folder: pathlib.Path) -> dict[str, Any]:
    """Seconds, processor seconds, bytes of memory, and the score of every key."""
    code, options = WAYS[way]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    base = str(ROOT / "savedmodels" / detector)
    with tempfile.TemporaryDirectory() as out:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", code, base, str(folder), out, *options],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        watch = _Watch(process.pid)
        _, errors = process.communicate()
        seconds = time.perf_counter() - began
        watch.stop()
        if process.returncode:
            raise SystemExit(errors[-3000:])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = [
            json.loads(line)
            for file in pathlib.Path(out).glob("scores-*")
            for line in file.read_text("utf-8").splitlines()
        ]
    scores = {one["key"]: one["score"] for one in lines}
    assert len(scores) == len(lines), "a key came twice"
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{way:30} {len(lines):6} images {seconds:6.1f} s {rate(lines):6.0f} images per second "
        f"{cpu:6.1f} s of processor {watch.most / 1e9:5.2f} GB",
        flush=True,
    )
    return {
        "seconds": seconds,
        "rate": rate(lines),
        "cpu": cpu,
        "bytes": watch.most,
        "scores": scores,
    }


class _Watch(threading.Thread):
    """The memory of a process and those below it, five times per second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._done, self.most = pid, threading.Event(), 0
        self.start()

    def run(self) -> None:
        while not self._done.wait(0.2):
            self.most = max(self.most, sum(map(_resident, _tree(self._pid))))

    def stop(self) -> None:
        self._done.set()
        self.join()


def _tree(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # It has ended.
            continue
        parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def _resident(pid: int) -> int:
    try:
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()


def _versions() -> dict[str, str]:
    import apache_beam

    return {**versions(), "apache-beam": apache_beam.__version__}


if __name__ == "__main__":
    main()
