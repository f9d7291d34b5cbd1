"""Seconds per training step of a RealNVP here and of one of equal size in PyTorch (eager), in one run.

    python tools/bench/training.py --preset cpu-grey --steps 15 --out results/bench_training.json

Needs the extra `bench`. Keep the machine free meanwhile: the variants alternate, but PyTorch's threads wait for each
other by spinning, so that on a busy machine its steps take many times as long; compare CPU seconds with --threads 1
there. Both frameworks have the same numbers of images, couplings, channels, blocks, batch normalisations,
weight-normalised convolutions and parameters, and Adam with the norm clipped at 100.
"""

import argparse
import functools
import os
import time
from collections.abc import Callable

import numpy as np
from measuring import take_turns, write_result
from torch_realnvp import count_parameters, log_prob, make_flow, to_pixels

from tfbnood._core.precision import has_bfloat16
from tfbnood._core.presets import PRESETS, RealNVPConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=PRESETS["realnvp"], default="cpu-grey")
    parser.add_argument("--steps", type=int, default=15, help="timed steps of each (default: 15)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="of each (default: all cores)"
    )
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    set_threads(arguments.threads)

    preset = PRESETS["realnvp"][arguments.preset]
    shape = (arguments.batch_size, *preset.image_shape)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    makers: dict[str, Callable[[], tuple[Callable[[], float], int]]] = {
        "pytorch_float32": lambda: make_torch_step(preset.image_shape, preset.config, images),
        "tfbnood_float32": lambda: make_step(arguments.preset, images, "float32"),
    }
    if has_bfloat16():
        makers["tfbnood_mixed_bfloat16"] = lambda: make_step(
            arguments.preset, images, "mixed_bfloat16"
        )
    steps, parameters, first = {}, {}, {}
    for name, make in makers.items():
        began = time.perf_counter()
        steps[name], parameters[name] = make()
        steps[name]()
        first[name] = time.perf_counter() - began
        steps[name]()
    if len(set(parameters.values())) > 1:
        raise SystemExit(f"the models must be of equal size. Received: {parameters}")

    def checked(name: str) -> None:
        loss = steps[name]()
        if not np.isfinite(loss):
            raise SystemExit(f"the loss of {name} became {loss}")

    ways = {name: functools.partial(checked, name) for name in steps}
    times = take_turns(ways, arguments.steps, warm=0)
    middle = {name: row["seconds"] for name, row in times.items()}
    middle_cpu = {name: row["cpu_seconds"] for name, row in times.items()}
    for name in steps:
        ratio = middle["pytorch_float32"] / middle[name]
        print(
            f"{name}: {middle[name]:.3f} s per step ({middle_cpu[name]:.3f} s of CPU), {ratio:.2f} times "
            f"PyTorch's speed; the first after {first[name]:.0f} s"
        )
    result = {
        "preset": arguments.preset,
        "batch_size": arguments.batch_size,
        "threads": arguments.threads,
        "steps": arguments.steps,
        "parameters": next(iter(parameters.values())),
        "seconds_per_step": middle,
        "cpu_seconds_per_step": middle_cpu,
        "times_the_speed_of_pytorch": {
            name: middle["pytorch_float32"] / of for name, of in middle.items()
        },
        "seconds_to_the_first_step": first,
    }
    write_result(arguments.out, result, {"torch": _torch_version()})


def set_threads(count: int) -> None:
    import tensorflow as tf
    import torch

    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)
    torch.set_num_threads(count)


def make_step(preset: str, images: np.ndarray, precision: str) -> tuple[Callable[[], float], int]:
    """A training step of this package, and the number of trainable parameters."""
    from tfbnood.models import RealNVP

    network = RealNVP.from_preset(preset, precision=precision)
    network.compile()
    count = int(sum(np.prod(one.shape) for one in network.trainable_weights))
    return lambda: float(network.train_on_batch(images)[0]), count


def make_torch_step(
    image_shape: tuple[int, int, int], config: RealNVPConfig, images: np.ndarray
) -> tuple[Callable[[], float], int]:
    """The same in PyTorch."""
    import torch

    flow = make_flow(image_shape, config)
    optimizer = torch.optim.Adam(flow.parameters(), 1e-3)
    pixels = to_pixels(images)

    def step() -> float:
        loss = -log_prob(flow, pixels).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 100.0)
        optimizer.step()
        return float(loss.detach())

    return step, count_parameters(flow)


def _torch_version() -> str:
    import torch

    return torch.__version__


if __name__ == "__main__":
    main()
