"""Options that several commands share, each spelled once."""

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
    """The data set to train on."""
    command.add_argument(
        "--data",
        required=True,
        help="data set, e.g. fashion_mnist; `tfbnood data` lists them; or a folder of images or an .npz file",
    )
    data_dir(command)


def data_dir(command: argparse.ArgumentParser) -> None:
    """Where data sets may be."""
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")


def model(command: argparse.ArgumentParser) -> None:
    """Which likelihood model."""
    command.add_argument(
        "--model", choices=tuple(PRESETS), default="realnvp", help="(default: realnvp)"
    )


def preset(command: argparse.ArgumentParser, **settings: Any) -> None:
    """Its size."""
    names = dict.fromkeys(name for presets in PRESETS.values() for name in presets)
    command.add_argument("--preset", choices=tuple(names), **settings)


def detector(command: argparse.ArgumentParser, more: str = "") -> None:
    """A detector of the user's or one that ships."""
    command.add_argument(
        "detector",
        metavar="DETECTOR",
        help=f"folder of a detector, or a shipped one by name, e.g. fashion_mnist_vae{more}",
    )


def fpr(command: Any, default: float | None = None) -> None:
    """The rate of false alarms; `command` may be a group of options."""
    command.add_argument(
        "--fpr",
        type=values.RATE,
        default=default,
        help="false-alarm rate (default: 0.01, or 0.02, 0.05, … with fewer than 299 calibration images)",
    )


def images_per_set(command: argparse.ArgumentParser) -> None:
    """How much to measure on."""
    command.add_argument(
        "--n", type=values.integer(1), default=1000, help="images of each set (default: 1000)"
    )


def seed(command: argparse.ArgumentParser) -> None:
    """The seed of everything random."""
    command.add_argument(
        "--seed",
        type=values.integer(0, 2**31 - 1),
        default=0,
        help="of everything random (default: 0)",
    )


def out(command: argparse.ArgumentParser, text: str, **settings: Any) -> None:
    """Where results go."""
    command.add_argument("--out", help=text, **settings)


def as_json(command: Any, text: str = "print JSON") -> None:
    """JSON instead of text; `command` may be a group of options."""
    command.add_argument("--json", action="store_true", help=text)
