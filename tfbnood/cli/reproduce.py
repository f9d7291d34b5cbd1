"""`tfbnood reproduce`: reproduces tables and figures."""

import argparse
from typing import Any

from tfbnood._core.precision import PRECISIONS
from tfbnood.cli import checks, options, values
from tfbnood.errors import TfbnoodError
from tfbnood.reproduce.near_cases import CASES
from tfbnood.reproduce.studies import SCALES, WAIC_MODELS, WHAT

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "reproduce",
        help="reproduce tables and figures",
        description="Trains and measures stage by stage. After Ctrl-C or a kill, run the same command again to resume.",
    )
    command.add_argument(
        "what",
        choices=WHAT,
        metavar="WHAT",
        help=f"{', '.join(WHAT[:-3])}; beyond: what this package adds; near: near outliers, with networks; "
        "all: the whole paper on one page",
    )
    command.add_argument("--scale", choices=tuple(SCALES), default="cpu", help="(default: cpu)")
    options.out(command, "folder of the results", required=True)
    command.add_argument(
        "--runs", help="folder of training runs, new or existing (default: OUT/runs)"
    )
    command.add_argument("--only", metavar="STUDY", help="one study, such as fashion_mnist_realnvp")
    command.add_argument(
        "--finished",
        action="store_true",
        help="run nothing; write the files of the finished stages",
    )
    options.images_per_set(command)
    command.add_argument(
        "--batches", type=values.integer(1), default=100, help="batches per kind (default: 100)"
    )
    command.add_argument(
        "--seeds",
        type=values.integer(1),
        default=WAIC_MODELS,
        help=f"models trained for WAIC; 1 leaves it out (default: {WAIC_MODELS})",
    )
    command.add_argument(
        "--steps",
        type=values.integer(1),
        help="optimiser steps of the studies' models (default: by study)",
    )
    command.add_argument(
        "--waic-steps",
        type=values.integer(1),
        metavar="STEPS",
        help="optimiser steps of each WAIC model (default: by study)",
    )
    command.add_argument(
        "--precision", choices=PRECISIONS, help="precision of all training runs (default: by study)"
    )
    options.data_dir(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Makes the tables and figures, and prints them as a page."""
    near = arguments.what == "near"
    names = [one.name for one in (CASES if near else SCALES[arguments.scale])]
    if arguments.only is not None and arguments.only not in names:
        where = "for near" if near else f"at --scale {arguments.scale}"
        raise TfbnoodError(
            f"--only must be one of {', '.join(names)} {where}. "
            f"Received: {arguments.only}{values.did_you_mean(arguments.only, names)}"
        )
    checks.check_data_sets("--data-dir", [], arguments.data_dir)
    checks.check_out(arguments.out)
    from tfbnood.reproduce.page import page_as_markdown
    from tfbnood.reproduce.run import reproduce

    sections = reproduce(
        arguments.what,
        arguments.out,
        scale=arguments.scale,
        n=arguments.n,
        batches=arguments.batches,
        seeds=arguments.seeds,
        steps=arguments.steps,
        waic_steps=arguments.waic_steps,
        precision=arguments.precision,
        data_dir=arguments.data_dir,
        runs=arguments.runs,
        only=arguments.only,
        finished=arguments.finished,
    )
    print(page_as_markdown(f"{arguments.what}: {arguments.out}", sections))
