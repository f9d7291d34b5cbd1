"""The stand-in server on an exported detector: latency, bytes on the wire, overhead over scoring in process.

    .venv/bin/python tools/bench/serving.py DETECTOR --data fashion_mnist --out results/bench_serving.json

The server runs in a process of its own, as `tfbnood serve` starts it; ways of asking take turns in one run, so that the
ratios are comparable whatever else the machine does.
"""

import argparse
import base64
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data import load
from tfbnood.detector import Detector


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("detector", help="folder of a detector of single images")
    parser.add_argument("--data", required=True, help="data set whose test images are sent")
    parser.add_argument("--repeats", type=int, default=40, help="of every way (default: 40)")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()

    detector = Detector.load(arguments.detector)
    images = load(arguments.data).test[:64]
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder) / "detector"
        version = detector.export(base)
        served = tf.saved_model.load(str(version)).signatures["encoded"]
        files = [tf.io.encode_png(image).numpy() for image in images]
        server = _Server(base)
        try:
            rows = _measure(detector, served, server, images, files, arguments.repeats)
        finally:
            server.stop()
    in_process = rows["in process, 64 images"]["p50_ms"]
    result = {
        "data": arguments.data,
        "repeats": arguments.repeats,
        "ways": rows,
        "overhead_at_64_encoded": rows["server, encoded, 64 images"]["p50_ms"] / in_process - 1,
        "versions": versions(),
        "machine": machine(),
    }
    for name, row in rows.items():
        print(
            f"{name:32} {row['p50_ms']:8.1f} ms p50 {row['p99_ms']:8.1f} ms p99 {row['bytes']:9} bytes"
        )
    print(f"overhead at 64 encoded images: {result['overhead_at_64_encoded']:+.1%}")
    if arguments.out:
        write_json(arguments.out, result)


def _measure(detector, served, server, images, files, repeats) -> dict[str, dict]:
    def columnar(count):
        return json.dumps({"inputs": images[:count].tolist()}).encode()

    def encoded(count):
        values = [{"b64": base64.b64encode(file).decode()} for file in files[:count]]
        return json.dumps({"signature_name": "encoded", "inputs": values}).encode()

    bodies = {
        f"server, {kind}, {count} image{'s' * (count > 1)}": make(count)
        for kind, make in (("JSON", columnar), ("encoded", encoded))
        for count in (1, 64)
    }
    ways: dict[str, tuple[Callable, int]] = {
        "in process, 1 image": (lambda: detector.score(images[:1]), 0),
        "in process, 64 images": (lambda: detector.score(images), 0),
        "SavedModel, encoded, 64 images": (lambda: served(image_bytes=tf.constant(files)), 0),
    }
    for name, body in bodies.items():
        ways[name] = (lambda body=body: server.predict(body), len(body))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 2):
        for name, (ask, _) in ways.items():
            began = time.perf_counter()
            ask()
            if repeat >= 2:  # The first ones compile and warm up.
                seconds[name].append(time.perf_counter() - began)
    return {
        name: {
            "p50_ms": 1000 * float(np.percentile(times, 50)),
            "p99_ms": 1000 * float(np.percentile(times, 99)),
            "requests_a_second": 1 / float(np.mean(times)),
            "bytes": ways[name][1],
        }
        for name, times in seconds.items()
    }


class _Server:
    """`tfbnood serve --stand-in` on a free port."""

    def __init__(self, base: pathlib.Path):
        command = [
            sys.executable,
            "-m",
            "tfbnood",
            "serve",
            str(base),
            "--stand-in",
            "--port",
            "0",
        ]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self._process.stderr:
            if "http://" in line:
                url = line[line.index("http://") :].split()[0].rstrip(".,;:")
                break
        else:
            raise SystemExit("the server did not start")
        self._path = f"/v1/models/{base.name}:predict"
        self._connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)

    def predict(self, body: bytes) -> bytes:
        self._connection.request("POST", self._path, body)
        response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise SystemExit(f"the server answered {response.status}: {content[:200]!r}")
        return content

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


if __name__ == "__main__":
    main()
