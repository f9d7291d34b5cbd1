"""Seconds per training step of a RealNVP here and of one of equal size in PyTorch (eager), in one run.

    python tools/bench/training.py --preset cpu-grey --steps 15 --out results/bench_training.json

Needs the extra `bench`. Keep the machine free meanwhile: the variants alternate, but PyTorch's threads wait for each
other by spinning, so that on a busy machine its steps take many times as long; compare CPU seconds with --threads 1
there. Both frameworks have the same numbers of images, couplings, channels, blocks, batch normalisations,
weight-normalised convolutions and parameters, and Adam with the norm clipped at 100.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfbnood._core.files import write_json
from tfbnood._core.precision import has_bfloat16
from tfbnood._core.presets import PRESETS, RealNVPConfig
from tfbnood._core.provenance import machine, versions


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

    wall: dict[str, list[float]] = {name: [] for name in steps}
    cpu: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(arguments.steps):
        for name, step in steps.items():
            began, began_cpu = time.perf_counter(), time.process_time()
            loss = step()
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(time.process_time() - began_cpu)
            if not np.isfinite(loss):
                raise SystemExit(f"the loss of {name} became {loss}")
    middle = {name: statistics.median(of) for name, of in wall.items()}
    middle_cpu = {name: statistics.median(of) for name, of in cpu.items()}
    for name in steps:
        ratio = middle["pytorch_float32"] / middle[name]
        print(
            f"{name}: {middle[name]:.3f} s per step ({middle_cpu[name]:.3f} s of CPU), {ratio:.2f} times "
            f"PyTorch's speed; the first after {first[name]:.0f} s"
        )
    if arguments.out:
        write_json(
            arguments.out,
            {
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
                "versions": {**versions(), "torch": _torch_version()},
                "machine": machine(),
            },
        )


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
    """The same in PyTorch, eager, with channels last in memory, its fastest layout on a CPU."""
    import torch
    from torch import nn
    from torch.nn.functional import relu
    from torch.nn.utils.parametrizations import weight_norm

    torch.manual_seed(0)

    def conv(inputs: int, outputs: int, kernel: int, bias: bool = True) -> nn.Module:
        return weight_norm(nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=bias))

    def norm(channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)

    class Block(nn.Module):
        def __init__(self, channels: int):
            super().__init__()
            self.first = nn.Sequential(
                norm(channels), nn.ReLU(), conv(channels, channels, 3, bias=False)
            )
            self.second = nn.Sequential(norm(channels), nn.ReLU(), conv(channels, channels, 3))

        def forward(self, x: Any) -> Any:
            return x + self.second(self.first(x))

    class Coupling(nn.Module):
        """Log-scale and shift from the variables that stay."""

        def __init__(self, inputs: int, outputs: int, channels: int, blocks: int):
            super().__init__()
            self.input_norm = norm(inputs)
            self.input_conv = conv(2 * inputs, channels, 3)
            self.blocks = nn.ModuleList(Block(channels) for _ in range(blocks))
            self.skips = nn.ModuleList(conv(channels, channels, 1) for _ in range(blocks + 1))
            self.output_norm = norm(channels)
            self.output_conv = conv(channels, 2 * outputs, 1)
            self.rescale = nn.Parameter(torch.ones(1, outputs, 1, 1))
            with torch.no_grad():  # The coupling starts as the identity.
                self.output_conv.parametrizations.weight.original0.zero_()
                self.output_conv.bias.zero_()

        def forward(self, x: Any) -> Any:
            x = self.input_norm(x)
            x = self.input_conv(relu(torch.cat((x, -x), 1)))
            total = self.skips[0](x)
            for block, skip in zip(self.blocks, self.skips[1:], strict=True):
                x = block(x)
                total = total + skip(x)
            log_scale, shift = self.output_conv(relu(self.output_norm(total))).chunk(2, 1)
            return self.rescale * torch.tanh(log_scale), shift

    class Flow(nn.Module):
        """One scale and all below it: checkerboards, squeeze, couplings by channel, half split off."""

        def __init__(self, channels: int, width: int, scales: int):
            super().__init__()
            count = 4 if scales == 1 else 3
            self.boards = nn.ModuleList(
                Coupling(channels, channels, width, config.blocks) for _ in range(count)
            )
            half = 2 * channels
            self.by_channel = nn.ModuleList(
                Coupling(half, half, 2 * width, config.blocks) for _ in range(3 * (scales > 1))
            )
            self.rest = Flow(half, 2 * width, scales - 1) if scales > 1 else None

        def forward(self, x: Any) -> Any:
            log_det = 0.0
            rows, columns = torch.arange(x.shape[2]), torch.arange(x.shape[3])
            board = (rows[:, None] + columns) % 2
            for index, coupling in enumerate(self.boards):
                moved = (board + index) % 2
                log_scale, shift = coupling(x * (1 - moved))
                log_scale = log_scale * moved
                x = x * torch.exp(log_scale) + shift * moved
                log_det = log_det + log_scale.sum((1, 2, 3))
            if self.rest is None:
                return x, log_det
            x = nn.functional.pixel_unshuffle(x, 2)
            for index, coupling in enumerate(self.by_channel):
                kept, moved = x.chunk(2, 1) if index % 2 == 0 else x.chunk(2, 1)[::-1]
                log_scale, shift = coupling(kept)
                moved = moved * torch.exp(log_scale) + shift
                x = torch.cat((kept, moved) if index % 2 == 0 else (moved, kept), 1)
                log_det = log_det + log_scale.sum((1, 2, 3))
            first, second = x.chunk(2, 1)
            first, below = self.rest(first)
            x = torch.cat((first, second), 1)
            return nn.functional.pixel_shuffle(x, 2), log_det + below

    flow = Flow(image_shape[2], config.channels, config.scales).to(
        memory_format=torch.channels_last
    )
    optimizer = torch.optim.Adam(flow.parameters(), 1e-3)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()

    def step() -> float:
        share = 0.5 + 0.9 * ((pixels + torch.rand_like(pixels)) / 256 - 0.5)
        logits = torch.logit(share).contiguous(memory_format=torch.channels_last)
        slope = nn.functional.softplus(logits) + nn.functional.softplus(-logits) + np.log(0.9 / 256)
        latents, log_det = flow(logits)
        prior = torch.distributions.Normal(0.0, 1.0).log_prob(latents).sum((1, 2, 3))
        loss = -(prior + log_det + slope.sum((1, 2, 3))).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 100.0)
        optimizer.step()
        return float(loss.detach())

    return step, sum(one.numel() for one in flow.parameters() if one.requires_grad)


def _torch_version() -> str:
    import torch

    return torch.__version__


if __name__ == "__main__":
    main()
