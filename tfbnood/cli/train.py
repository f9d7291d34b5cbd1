"""`tfbnood train`: trains a likelihood model."""

import argparse
import os
import sys
from typing import Any

from tfbnood._core.cluster import TF_CONFIG_VARIABLE, read_cluster
from tfbnood._core.precision import PRECISIONS, warn_of_precision
from tfbnood._core.presets import check_size, default_preset
from tfbnood.cli import checks, options, values

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "train",
        help="train a likelihood model",
        description="Trains a model and writes it to a folder. After Ctrl-C or a kill, run the same command again to "
        "resume.",
    )
    options.data(command)
    options.model(command)
    options.preset(
        command,
        help="size of the model (default: cpu-grey, cpu-colour or tiny, depending on the images)",
    )
    command.add_argument(
        "--steps",
        type=values.integer(1),
        default=3000,
        help="optimiser steps in total (default: 3000)",
    )
    options.out(command, "folder of the run", required=True)
    command.add_argument(
        "--batch-size",
        type=values.integer(1),
        default=64,
        help="images per step and replica (default: 64)",
    )
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
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="number format of the training's convolutions; the model always scores in float32 (default: float32)",
    )
    command.add_argument(
        "--mutation",
        type=values.MUTATION,
        default=0.0,
        metavar="SHARE",
        help="share of every image's values to replace by noise, for likelihood_ratio's background model (default: 0)",
    )
    command.add_argument(
        "--any-size",
        action="store_true",
        help="accept images far larger than the preset is meant for; training is slow",
    )
    command.add_argument(
        "--checkpoint-every",
        type=values.integer(1),
        default=100,
        metavar="STEPS",
        help="(default: 100)",
    )
    # Repeated here because their module imports TensorFlow; tests/cli/test_train.py compares the two.
    command.add_argument(
        "--strategy",
        choices=("mirrored", "multiworker"),
        help="train on several devices of this machine, or on several machines, each with TF_CONFIG (default: neither)",
    )
    command.add_argument(
        "--replicas",
        type=values.integer(1),
        metavar="N",
        help="devices to use with --strategy mirrored (default: every GPU)",
    )
    command.add_argument(
        "--sync-moments",
        action="store_true",
        help="normalise with the moments of all replicas' images, not of each replica's own",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Trains a model and prints where it is."""
    checks.check_data_sets("--data", [arguments.data], arguments.data_dir)
    checks.check_out(arguments.out)
    cluster = None
    if arguments.strategy == "multiworker":
        cluster = read_cluster(os.environ.get(TF_CONFIG_VARIABLE))
    from tfbnood.data.sets import load

    dataset = load(arguments.data, data_dir=arguments.data_dir)
    preset = arguments.preset or default_preset(*dataset.image_shape)
    # Here rather than in `train`: before TensorFlow is imported, and in one line.
    if not arguments.any_size:
        slow = check_size(arguments.model, preset, dataset.image_shape, argument="--data")
        if slow:
            print(f"tfbnood: warning: {slow}", file=sys.stderr)
    slow = warn_of_precision(arguments.precision, argument="--precision")
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
        precision=arguments.precision,
        mutation=arguments.mutation,
        any_size=True,
        checkpoint_every=arguments.checkpoint_every,
        strategy=arguments.strategy,
        replicas=arguments.replicas,
        sync_moments=arguments.sync_moments,
    )
    if cluster is not None and not cluster.is_chief:
        print(f"trained {network.name} with {cluster.addresses[0]}, which writes the files")
        return
    print(f"trained {network.name}: {arguments.out}/model.keras, {arguments.out}/run.json")
