"""`tfbnood train`: a likelihood model trained into a folder."""

import argparse
import sys
from typing import Any

from tfbnood._core.presets import check_size, default_preset
from tfbnood.cli import checks, options, values

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "train",
        help="train a likelihood model",
        description="Trains a model into a folder. The same command again resumes after Ctrl-C or a kill.",
    )
    options.data(command)
    options.model(command)
    options.preset(
        command, help="the model's size (default: cpu-grey, cpu-colour or tiny, by the images)"
    )
    command.add_argument(
        "--steps",
        type=values.integer(1),
        default=3000,
        help="optimiser steps in all (default: 3000)",
    )
    options.out(command, "folder of the run", required=True)
    command.add_argument("--batch-size", type=values.integer(1), default=64, help="(default: 64)")
    command.add_argument(
        "--learning-rate", type=values.POSITIVE, default=1e-3, help="(default: 0.001)"
    )
    options.seed(command)
    command.add_argument(
        "--jit",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="compile with XLA: a minute at the start, then faster",
    )
    command.add_argument(
        "--mutation",
        type=values.MUTATION,
        default=0.0,
        metavar="SHARE",
        help="values of every image to replace by noise: a background model for likelihood_ratio (default: 0)",
    )
    command.add_argument(
        "--any-size",
        action="store_true",
        help="train on images far larger than the preset is meant for, however slowly",
    )
    command.add_argument(
        "--checkpoint-every",
        type=values.integer(1),
        default=100,
        metavar="STEPS",
        help="(default: 100)",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Trains, and prints what was made."""
    checks.check_data_sets("--data", [arguments.data], arguments.data_dir)
    checks.check_out(arguments.out)
    from tfbnood.data.sets import load

    dataset = load(arguments.data, data_dir=arguments.data_dir)
    preset = arguments.preset or default_preset(*dataset.image_shape)
    # Here and not in `train`: before TensorFlow is imported, and in one line.
    if not arguments.any_size:
        slow = check_size(arguments.model, preset, dataset.image_shape, argument="--data")
        if slow:
            print(f"tfbnood: warning: {slow}", file=sys.stderr)
    from tfbnood.training.run import train

    network = train(
        dataset,
        model=arguments.model,
        preset=preset,
        steps=arguments.steps,
        out=arguments.out,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
        jit=arguments.jit,
        mutation=arguments.mutation,
        any_size=True,
        checkpoint_every=arguments.checkpoint_every,
    )
    print(f"trained {network.name}: {arguments.out}/model.keras, {arguments.out}/run.json")
