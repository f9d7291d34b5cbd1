"""Options that several commands share, each defined once."""

import argparse
from typing import Any

from tfbnood._core.presets import PRESETS
from tfbnood.cli import values

__all__ = [
    "as_json",
    "data",
    "data_dir",
    "detector",
    "fpr",
    "images_per_set",
    "model",
    "out",
    "preset",
    "seed",
]


def data(command: argparse.ArgumentParser) -> None:
    """Adds --data: the data set to train on."""
    command.add_argument(
        "--data",
        required=True,
        help="data set, e.g. fashion_mnist (`tfbnood data` lists them), a folder of images, or an .npz file",
    )
    data_dir(command)


def data_dir(command: argparse.ArgumentParser) -> None:
    """Adds --data-dir: the folder of data sets."""
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")


def model(command: argparse.ArgumentParser) -> None:
    """Adds --model: the likelihood model."""
    command.add_argument(
        "--model",
        choices=tuple(PRESETS),
        default="realnvp",
        help="likelihood model (default: realnvp)",
    )


def preset(command: argparse.ArgumentParser, **settings: Any) -> None:
    """Adds --preset: the size of the model."""
    names = dict.fromkeys(name for presets in PRESETS.values() for name in presets)
    command.add_argument("--preset", choices=tuple(names), **settings)


def detector(command: argparse.ArgumentParser, more: str = "") -> None:
    """Adds DETECTOR: the user's own or a shipped one."""
    command.add_argument(
        "detector",
        metavar="DETECTOR",
        help=f"folder of a detector, or name of a shipped one, e.g. fashion_mnist_vae{more}",
    )


def fpr(command: Any, default: float | None = None) -> None:
    """Adds --fpr: the false-alarm rate; `command` may be a group of options."""
    command.add_argument(
        "--fpr",
        type=values.RATE,
        default=default,
        help="false-alarm rate (default: 0.01, or 0.02, 0.05, … with fewer than 299 calibration images)",
    )


def images_per_set(command: argparse.ArgumentParser) -> None:
    """Adds --n: the number of images."""
    command.add_argument(
        "--n", type=values.integer(1), default=1000, help="images per set (default: 1000)"
    )


def seed(command: argparse.ArgumentParser) -> None:
    """Adds --seed."""
    command.add_argument(
        "--seed",
        type=values.integer(0, 2**31 - 1),
        default=0,
        help="random seed (default: 0)",
    )


def out(command: argparse.ArgumentParser, text: str, **settings: Any) -> None:
    """Adds --out: where results go."""
    command.add_argument("--out", help=text, **settings)


def as_json(command: Any, text: str = "print JSON") -> None:
    """Adds --json; `command` may be a group of options."""
    command.add_argument("--json", action="store_true", help=text)
