"""Seconds per training step of a preset with and without XLA, and their ratio, in one run.

    .venv/bin/python tools/bench/training_step.py --model realnvp --preset paper-grey --out results/NAME.json

Keep the machine free meanwhile: both variants alternate, but a load in one of them still shows.
"""

import argparse
import functools
import time

import numpy as np
from measuring import take_turns, write_result

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

    steps = {
        name: functools.partial(network.train_on_batch, images)
        for name, network in networks.items()
    }
    times = take_turns(steps, arguments.steps, warm=0)
    median = {name: row["seconds"] for name, row in times.items()}
    result = {
        "model": arguments.model,
        "preset": arguments.preset,
        "batch_size": arguments.batch_size,
        "seconds_a_step": median,
        "seconds_of_the_first_step": first_step,
        "ratio_without_to_with_xla": median["without_xla"] / median["with_xla"],
    }
    for name in networks:
        print(f"{name}: {median[name]:.2f} s a step, the first {first_step[name]:.0f} s")
    print(f"ratio: {result['ratio_without_to_with_xla']:.2f}")
    write_result(arguments.out, result)


if __name__ == "__main__":
    main()
