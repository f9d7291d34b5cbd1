"""`tfbnood tune`: searches for a model's sizes, learning rate and batch size."""

import argparse
import json
import os
import shlex
import sys
from typing import Any

from tfbnood._core.presets import check_size, default_preset
from tfbnood._core.tuner_process import read_tuner_process
from tfbnood.cli import checks, options, values

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "tune",
        help="search for a model's sizes, learning rate and batch size",
        description="Searches with keras-tuner, using the training images only. After Ctrl-C, a kill or the time "
        "limit, run the same command again to resume.",
    )
    options.data(command)
    options.model(command)
    options.preset(
        command,
        help="centre of the search space (default: cpu-grey, cpu-colour or tiny, depending on the images)",
    )
    options.out(command, "folder of the search (default: tuning)", default="tuning")
    command.add_argument(
        "--trials", type=values.integer(1), default=20, help="trials in total (default: 20)"
    )
    command.add_argument(
        "--max-minutes",
        type=values.POSITIVE,
        metavar="N",
        help="time limit (default: none)",
    )
    # Repeated here because their modules import TensorFlow; tests/tuning compares the two.
    command.add_argument(
        "--method",
        choices=("random", "hyperband", "bayesian"),
        default="random",
        help="how the next trial is chosen (default: random)",
    )
    command.add_argument(
        "--objective",
        choices=("val_bits_per_dim", "pseudo_auroc"),
        default="val_bits_per_dim",
        help="bits per dimension of held-out images, or AUROC on outliers made from them (default: val_bits_per_dim)",
    )
    command.add_argument(
        "--statistic",
        type=values.statistic_name,
        default="auto",
        help="statistic for the objective pseudo_auroc (default: auto)",
    )
    command.add_argument(
        "--epochs", type=values.integer(1), default=10, help="epochs per training run (default: 10)"
    )
    options.seed(command)
    command.add_argument(
        "--any-size",
        action="store_true",
        help="accept images far larger than the preset is meant for; the search is slow",
    )
    command.add_argument(
        "--choose-statistic",
        action="store_true",
        help="afterwards rank statistics, r1, r2 and batch sizes for the best model, without training",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Searches, and prints the trials and the next command."""
    checks.check_data_sets("--data", [arguments.data], arguments.data_dir)
    checks.check_out(arguments.out)
    process = read_tuner_process(os.environ)
    from tfbnood.data.sets import load

    dataset = load(arguments.data, data_dir=arguments.data_dir)
    # Here rather than in `tune`: before TensorFlow is imported, and in one line.
    if not arguments.any_size:
        preset = arguments.preset or default_preset(*dataset.image_shape)
        slow = check_size(arguments.model, preset, dataset.image_shape, argument="--data")
        if slow:
            print(f"tfbnood: warning: {slow}", file=sys.stderr)
    from tfbnood.tuning.run import choose_statistic_for_best, ranking_table, tune

    found = tune(
        dataset,
        model=arguments.model,
        preset=arguments.preset,
        out=arguments.out,
        trials=arguments.trials,
        max_minutes=arguments.max_minutes,
        method=arguments.method,
        objective=arguments.objective,
        statistic=arguments.statistic,
        epochs=arguments.epochs,
        seed=arguments.seed,
        any_size=True,
    )
    if process is not None and not process.is_chief:
        numbers = ", ".join(str(trial.number) for trial in found.trials)
        print(f"{process.tuner_id} ran trials: {numbers or 'none'}; the chief reports them")
        return
    print(found)
    calibrate = ["tfbnood", "calibrate", f"{arguments.out}/best", "--out", "DETECTOR"]
    if arguments.choose_statistic:
        ranked = choose_statistic_for_best(arguments.out, dataset, seed=arguments.seed)
        print(f"\n{ranking_table(ranked)}")
        settings = f":{json.dumps(ranked[0].settings)}" if ranked[0].settings else ""
        calibrate += ["--statistic", ranked[0].name + settings]
    failed = sum(trial.status == "failed" for trial in found.trials)
    if failed:
        print(f"\n{failed} of {len(found.trials)} trials failed")
    if not found.finished:
        print(
            f"\nTime limit reached after {len(found.trials)} of {arguments.trials} trials; "
            "run the same command again to resume."
        )
    print(f"\nbest: trial {found.best.number}; make a detector from it: {shlex.join(calibrate)}")
