"""Apache Beam beside scoring in process: images per second at equal cores, and memory over many images.

    .venv/bin/python tools/bench/beam.py --parts throughput --out results/beam.json   # under 5 minutes, alone
    .venv/bin/python tools/bench/beam.py --parts memory --out results/beam.json

Needs `pip install "tfbnood[beam]"`. Each way scores the same PNG files in processes of its own, in turns. Images per
second are between the first and the last score, when all workers have their model; `cpu_ms` is the processor time of
the workers per image between the same two, and hardly depends on what else the machine does. `seconds` and
`cpu_seconds` are of the whole run, with the start of Python, TensorFlow and workers. Memory is the largest sum of what
all processes of a way hold, with pages that they share counted in each.
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
            record = {"key": str(path), **dict(zip(found, values)), "worker": os.getpid()}
            record |= {"time": time.time(), "cpu": time.process_time()}
            file.write(json.dumps(record) + "\\n")
"""
BEAM = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from tfbnood.beam import ScoreImages

def stamped(record):
    import json, os, time
    record = {**record, "time": time.time(), "cpu": time.process_time(), "worker": os.getpid()}
    return json.dumps(record)

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
    parser.add_argument("--parts", nargs="+", choices=("throughput", "memory"), required=True)
    parser.add_argument("--detector", default="fashion_mnist_realnvp")
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--images", type=int, default=2000, help="to time (default: 2000)")
    parser.add_argument("--turns", type=int, default=3, help="of every way (default: 3)")
    parser.add_argument("--memory-detector", default="digits_realnvp")
    parser.add_argument("--memory-data", default="digits")
    parser.add_argument("--memory-images", type=int, default=20000, help="default: 20000")
    parser.add_argument("--out", help="result file, JSON; the other part stays in it")
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    if arguments.out and os.path.exists(arguments.out):
        result = json.loads(pathlib.Path(arguments.out).read_text("utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "throughput" in arguments.parts:
            files = make_files(folder, arguments.data, arguments.images)
            result["throughput"] = {
                "detector": arguments.detector,
                "images": arguments.images,
                "turns": arguments.turns,
                **throughput(arguments.detector, files, arguments.turns),
            }
        if "memory" in arguments.parts:
            counts = (arguments.memory_images // 10, arguments.memory_images)
            folders = [make_files(folder, arguments.memory_data, count) for count in counts]
            result["memory"] = {
                "detector": arguments.memory_detector,
                **memory(arguments.memory_detector, folders, counts),
            }
    print(json.dumps(result, indent=2))
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


def throughput(detector: str, folder: pathlib.Path, turns: int) -> dict[str, Any]:
    """Medians over the turns of each way, and the largest difference of a score from that in process."""
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(turns):
        for way in WAYS:
            found[way].append(run(way, detector, folder))
    expected = found["in process"][0]["scores"]
    ways: dict[str, dict[str, float]] = {}
    for way, runs in found.items():
        assert all(one["scores"].keys() == expected.keys() for one in runs)
        names = ("images_per_second", "cpu_ms", "seconds", "cpu_seconds")
        ways[way] = {name: statistics.median(one[name] for one in runs) for name in names}
        ways[way]["largest_difference"] = max(
            abs(one["scores"][key] - expected[key]) for one in runs for key in expected
        )
    alone = ways["in process"]
    ratios = {
        way: {
            "images_per_second": row["images_per_second"] / alone["images_per_second"],
            "images_per_cpu_second": alone["cpu_ms"] / row["cpu_ms"],
        }
        for way, row in ways.items()
        if row is not alone
    }
    return {"ways": ways, "ratios": ratios}


def steady(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Images per second from when every worker has scored its first batch to when the first one has no more.

    And milliseconds of the workers' processors per image, from the first score of each to its last.
    """
    workers: dict[int, list[dict[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: line["time"]):
        workers.setdefault(line["worker"], []).append(line)
    begin = max(some[0]["time"] for some in workers.values())
    end = min(some[-1]["time"] for some in workers.values())
    if end <= begin:  # So few images that one had ended before the other began.
        begin = min(some[0]["time"] for some in workers.values())
        end = max(some[-1]["time"] for some in workers.values())
    count = sum(begin < line["time"] <= end for line in lines)
    # The first batch is done when its first score is written.
    later = sum(line["time"] > some[0]["time"] + 0.05 for some in workers.values() for line in some)
    cpu = sum(some[-1]["cpu"] - some[0]["cpu"] for some in workers.values())
    return {"images_per_second": count / (end - begin), "cpu_ms": 1000 * cpu / later}


def memory(
    detector: str, folders: list[pathlib.Path], counts: tuple[int, int]
) -> dict[str, dict[str, float]]:
    """The largest memory of each way of Beam in GB, over a tenth of the images and all of them."""
    return {
        way: {
            f"GB_over_{count}_images": run(way, detector, folder)["bytes"] / 1e9
            for count, folder in zip(counts, folders, strict=True)
        }
        for way in WAYS
        if way != "in process"
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
    found = {"seconds": seconds, "cpu_seconds": cpu, **steady(lines)}
    print(
        f"{way:30} {len(lines):6} images {seconds:6.1f} s {found['images_per_second']:6.0f} images per second "
        f"{found['cpu_ms']:6.2f} ms of processor per image {watch.most / 1e9:5.2f} GB",
        flush=True,
    )
    return {**found, "bytes": watch.most, "scores": scores}


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
