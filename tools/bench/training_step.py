"""Seconds per training step of a preset with and without XLA, and their ratio, in one run.

    .venv/bin/python tools/bench/training_step.py --model realnvp --preset paper-grey --out results/NAME.json

Keep the machine free meanwhile: both variants alternate, but a load in one of them still shows.
"""

import argparse
import statistics
import time

import numpy as np

from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.models.registry import MODELS, model_class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="realnvp")
    parser.add_argument("--preset", default="paper-grey")
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each (default: 5)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()

    networks, first_step = {}, {}
    for name, jit in (("without_xla", False), ("with_xla", True)):
        network = model_class(arguments.model).from_preset(arguments.preset)
        network.compile(jit_compile=jit)
        shape = (arguments.batch_size, *network.image_shape)
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        began = time.perf_counter()
        network.train_on_batch(images)
        first_step[name] = time.perf_counter() - began
        networks[name] = network

    seconds: dict[str, list[float]] = {name: [] for name in networks}
    for _ in range(arguments.steps):
        for name, network in networks.items():
            began = time.perf_counter()
            network.train_on_batch(images)
            seconds[name].append(time.perf_counter() - began)

    median = {name: statistics.median(times) for name, times in seconds.items()}
    result = {
        "model": arguments.model,
        "preset": arguments.preset,
        "batch_size": arguments.batch_size,
        "seconds_a_step": median,
        "seconds_of_the_first_step": first_step,
        "ratio_without_to_with_xla": median["without_xla"] / median["with_xla"],
        "versions": versions(),
        "machine": machine(),
    }
    for name in networks:
        print(f"{name}: {median[name]:.2f} s a step, the first {first_step[name]:.0f} s")
    print(f"ratio: {result['ratio_without_to_with_xla']:.2f}")
    if arguments.out:
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
