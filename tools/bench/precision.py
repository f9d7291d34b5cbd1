"""Held-out bits per dimension after the same steps in float32 and in mixed_bfloat16, scored in float32 both.

    .venv/bin/python tools/bench/precision.py --model realnvp --preset cpu-grey --runs RUNS --out results/NAME.json

Trainings resume in --runs. A result file that is there already keeps its other lines.
"""

import argparse
import json
import pathlib
import time

import numpy as np

from tfbnood._core.files import write_json
from tfbnood._core.precision import PRECISIONS
from tfbnood._core.provenance import machine, versions
from tfbnood.data import load
from tfbnood.models.registry import MODELS
from tfbnood.training.run import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--model", choices=MODELS, default="realnvp")
    parser.add_argument("--preset", default="cpu-grey")
    parser.add_argument("--steps", type=int, default=500, help="(default: 500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=1000, help="held-out images (default: 1000)")
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="folder of trainings")
    parser.add_argument("--out", type=pathlib.Path, help="result file, JSON")
    arguments = parser.parse_args()

    dataset = load(arguments.data)
    settings = {key: getattr(arguments, key) for key in ("model", "preset", "steps", "seed")}
    name = "_".join(map(str, (arguments.data, *settings.values())))
    bits, seconds = {}, {}
    for precision in PRECISIONS:
        began = time.process_time()
        folder = arguments.runs / f"{name}_{precision}"
        network = train(dataset, out=folder, precision=precision, **settings)
        seconds[precision] = time.process_time() - began
        bits[precision] = network.bits_per_dim(dataset.calibration[: arguments.n])
    exact, fast = (bits[precision] for precision in PRECISIONS)
    line = {
        "data": arguments.data,
        **settings,
        "images": len(exact),
        "bits_per_dim": {precision: float(of.mean()) for precision, of in bits.items()},
        "difference": float((fast - exact).mean()),
        # Of the mean over images alone: another seed moves both trainings by more.
        "standard_error": float((fast - exact).std() / np.sqrt(len(exact))),
        "cpu_seconds": seconds,
    }
    print(name, line["bits_per_dim"], f"difference {line['difference']:+.4f}")
    if arguments.out:
        lines = json.loads(arguments.out.read_text())["lines"] if arguments.out.exists() else {}
        content = {"versions": versions(), "machine": machine(), "lines": {**lines, name: line}}
        write_json(arguments.out, content)


if __name__ == "__main__":
    main()
