"""The command `tfbnood`. Heavy imports happen inside the subcommands, so that `--help` answers at once."""

import argparse
import sys
from collections.abc import Sequence

from tfbnood._core.quiet import quiet_tensorflow
from tfbnood._version import __version__
from tfbnood.errors import TfbnoodError

__all__ = ["main"]

MODEL_NAMES = ("realnvp", "vae", "pixelcnn")
PRESET_NAMES = ("paper-grey", "paper-colour", "cpu-grey", "cpu-colour", "tiny")
REPRODUCIBLE = (
    *("table1", "table2", "table3", "table4"),
    *("figure1", "figure2", "figure3", "figure4", "figure5"),
    *("beyond", "all"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; a mistake of the user's is one line on standard error and exit code 2."""
    arguments = _parser().parse_args(argv)
    try:
        with quiet_tensorflow():
            return arguments.run(arguments) or 0
    except TfbnoodError as error:
        print(f"tfbnood: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tfbnood: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tfbnood",
        description="Tells which images do not belong to the distribution a model was trained on.",
    )
    parser.add_argument("--version", action="version", version=f"tfbnood {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_data(commands)
    _add_train(commands)
    _add_tune(commands)
    _add_calibrate(commands)
    _add_score(commands)
    _add_evaluate(commands)
    _add_export(commands)
    _add_serve(commands)
    _add_reproduce(commands)
    return parser


def _add_demo(commands) -> None:
    command = commands.add_parser(
        "demo",
        help="the whole job on scikit-learn's 8×8 digits, in about 3 minutes",
        description="Trains on scikit-learn's 8×8 digits and shows what the model makes of images that are none.",
    )
    command.add_argument("--out", default="demo", help="folder of the results (default: demo)")
    command.add_argument("--steps", type=int, default=500, help="training steps (default: 500)")
    command.set_defaults(run=_demo)


def _add_data(commands) -> None:
    command = commands.add_parser(
        "data",
        help="which data sets this machine has",
        description="Lists data sets, where they come from and how many images they have.",
    )
    command.add_argument("names", nargs="*", help="data sets (default: all that are known)")
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_data)


def _add_train(commands) -> None:
    command = commands.add_parser(
        "train",
        help="train a likelihood model",
        description="Trains a model into a folder. The same command again goes on after Ctrl-C or a kill.",
    )
    command.add_argument(
        "--data", required=True, help="a name for tfbnood.data.load, e.g. fashion_mnist"
    )
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")
    command.add_argument("--model", choices=MODEL_NAMES, default="realnvp")
    command.add_argument("--preset", choices=PRESET_NAMES, required=True)
    command.add_argument("--steps", type=int, required=True, help="optimiser steps in all")
    command.add_argument("--out", required=True, help="folder of the run")
    command.add_argument("--batch-size", type=int, default=64)
    command.add_argument("--learning-rate", type=float, default=1e-3)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument(
        "--jit",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="compile with XLA: a minute at the start, then faster",
    )
    command.add_argument(
        "--mutation",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="values of every image to replace by noise: a background model for likelihood_ratio (default: 0)",
    )
    command.add_argument("--checkpoint-every", type=int, default=100, metavar="STEPS")
    command.set_defaults(run=_train)


def _add_tune(commands) -> None:
    command = commands.add_parser(
        "tune",
        help="search for a model's sizes, learning rate and batch size",
        description="Searches with keras-tuner on the training images alone. The same command again goes on after "
        "Ctrl-C, a kill, or when time was over.",
    )
    command.add_argument(
        "--data", required=True, help="a name for tfbnood.data.load, e.g. fashion_mnist"
    )
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")
    command.add_argument(
        "--model", choices=MODEL_NAMES, default="realnvp", help="(default: realnvp)"
    )
    command.add_argument(
        "--preset",
        choices=PRESET_NAMES,
        help="the middle of the search space (default: cpu-grey, cpu-colour or tiny, by the images)",
    )
    command.add_argument("--out", default="tuning", help="folder of the search (default: tuning)")
    command.add_argument("--trials", type=int, default=20, help="to run in all (default: 20)")
    command.add_argument(
        "--max-minutes", type=float, metavar="N", help="stop after so long (default: no limit)"
    )
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
        help="bits per dimension of held-out images, or AUROC on outliers made of them (default: val_bits_per_dim)",
    )
    command.add_argument(
        "--statistic", default="auto", help="of the objective pseudo_auroc (default: auto)"
    )
    command.add_argument("--epochs", type=int, default=10, help="of a training (default: 10)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument(
        "--choose-statistic",
        action="store_true",
        help="then rank statistics, r1, r2 and batch sizes for the best model, without training",
    )
    command.set_defaults(run=_tune)


def _add_calibrate(commands) -> None:
    command = commands.add_parser(
        "calibrate",
        help="make a detector of a trained model",
        description="Makes a detector of a run of `tfbnood train`, calibrated on the run's held-out images.",
    )
    command.add_argument(
        "run_folders", nargs="+", metavar="RUN", help="folder of a run; several for waic"
    )
    command.add_argument(
        "--statistic",
        default="auto",
        help='name, or with settings bn_delta:{"r1": 0} (default: auto, which also trains small networks, for some '
        'minutes on many images; ensemble:{"pretext": false} does not)',
    )
    command.add_argument("--images", type=int, help="held-out images to use (default: all)")
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")
    command.add_argument("--out", required=True, help="folder of the detector")
    command.set_defaults(run=_calibrate)


def _add_score(commands) -> None:
    command = commands.add_parser(
        "score",
        help="tell which images are out-of-distribution",
        description="Scores a folder of PNG and JPEG images, an npz or an npy file, and lists the flagged images.",
    )
    command.add_argument(
        "detector", help="folder of a detector, or with --url the name of a served model"
    )
    command.add_argument("images", help="folder of images, .npz or .npy")
    command.add_argument(
        "--url", help="ask a server, e.g. http://127.0.0.1:8501, instead of loading a detector"
    )
    rates = command.add_mutually_exclusive_group()
    rates.add_argument("--fpr", type=float, help="false-alarm rate (default: 0.01)")
    rates.add_argument("--fdr", type=float, help="share of false alarms among the alarms, instead")
    command.add_argument(
        "--skip-unreadable", action="store_true", help="leave out files that are not images"
    )
    formats = command.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print JSON, all images")
    formats.add_argument("--csv", action="store_true", help="print CSV, all images")
    command.set_defaults(run=_score)


def _add_evaluate(commands) -> None:
    command = commands.add_parser(
        "evaluate",
        help="how well a detector tells data sets apart",
        description="AUROC, AP and FPR at 95 % TPR of a detector, and bits per dimension in both modes.",
    )
    command.add_argument("detector", help="folder of a detector")
    command.add_argument(
        "--inliers", required=True, help="data set of the in-distribution test images"
    )
    command.add_argument(
        "--outliers",
        required=True,
        nargs="+",
        help="data sets; also rotation and inverted (made of the inliers) and photos (scikit-learn's)",
    )
    command.add_argument(
        "--statistics",
        nargs="+",
        help='names, or with settings bn_delta:{"r1": 0} (default: its own)',
    )
    command.add_argument("--contamination", nargs="+", type=float, default=[1.0], metavar="SHARE")
    command.add_argument("--n", type=int, default=1000, help="images of each set (default: 1000)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")
    command.add_argument("--out", help="folder for results.json, .md and .png")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_evaluate)


def _add_export(commands) -> None:
    command = commands.add_parser(
        "export",
        help="write a detector as a SavedModel for TF Serving",
        description="Writes the next version of a model base, OUT/<integer>, with signatures for TF Serving.",
    )
    command.add_argument("detector", help="folder of a detector")
    command.add_argument("--out", required=True, help="the model base, e.g. savedmodels/NAME")
    command.add_argument("--fpr", type=float, default=0.01, help="false-alarm rate (default: 0.01)")
    command.add_argument(
        "--data",
        help="data set whose held-out images calibrate score_batch (default: the detector's)",
    )
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")
    command.add_argument(
        "--embed",
        type=int,
        default=0,
        metavar="IMAGES",
        help="training images to put inside, for score_batch with mixed samples (default: 0, mixed moments)",
    )
    command.set_defaults(run=_export)


def _add_serve(commands) -> None:
    command = commands.add_parser(
        "serve",
        help="serve exported detectors over REST",
        description="Runs tensorflow_model_server, its container, or a stand-in for development.",
    )
    command.add_argument("path", help="a model base, a folder of bases, or a models.config")
    command.add_argument("--port", type=int, default=8501, help="(default: 8501)")
    command.add_argument("--host", default="127.0.0.1", help="(default: 127.0.0.1)")
    command.add_argument("--stand-in", action="store_true", help="use the stand-in in any case")
    command.add_argument(
        "--merge", action="store_true", help="stand-in: join rows of concurrent requests"
    )
    command.set_defaults(run=_serve)


def _add_reproduce(commands) -> None:
    command = commands.add_parser(
        "reproduce",
        help="make tables and figures again",
        description="Trains and measures stage by stage. The same command again goes on after Ctrl-C or a kill.",
    )
    command.add_argument(
        "what",
        choices=REPRODUCIBLE,
        metavar="WHAT",
        help=f"{', '.join(REPRODUCIBLE[:-2])}; beyond: what this package adds; all: one page of everything",
    )
    command.add_argument(
        "--scale", choices=("tiny", "cpu", "paper"), default="cpu", help="(default: cpu)"
    )
    command.add_argument("--out", required=True, help="folder of the results")
    command.add_argument(
        "--runs", help="folder of trainings, made or already there (default: OUT/runs)"
    )
    command.add_argument("--only", metavar="STUDY", help="one study, such as fashion_mnist_realnvp")
    command.add_argument(
        "--finished", action="store_true", help="run nothing: write files of the finished stages"
    )
    command.add_argument("--n", type=int, default=1000, help="images of each set (default: 1000)")
    command.add_argument(
        "--batches", type=int, default=100, help="batches of each kind (default: 100)"
    )
    command.add_argument(
        "--seeds", type=int, default=2, help="models trained for WAIC; 1 leaves it out (default: 2)"
    )
    command.add_argument("--data-dir", help="folder of npz files (default: $TFBNOOD_DATA)")
    command.set_defaults(run=_reproduce)


def _demo(arguments) -> None:
    from tfbnood.cli.demo import demo

    demo(arguments.out, steps=arguments.steps)


def _data(arguments) -> None:
    from tfbnood.data.sets import describe

    print(describe(arguments.names, data_dir=arguments.data_dir, as_json=arguments.json))


def _train(arguments) -> None:
    from tfbnood.data.sets import load
    from tfbnood.training.run import train

    network = train(
        load(arguments.data, data_dir=arguments.data_dir),
        model=arguments.model,
        preset=arguments.preset,
        steps=arguments.steps,
        out=arguments.out,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
        jit=arguments.jit,
        mutation=arguments.mutation,
        checkpoint_every=arguments.checkpoint_every,
    )
    print(f"trained {network.name}: {arguments.out}/model.keras, {arguments.out}/run.json")


def _tune(arguments) -> None:
    import json
    import shlex

    from tfbnood.data.sets import load
    from tfbnood.tuning.run import choose_statistic_for_best, ranking_table, tune

    dataset = load(arguments.data, data_dir=arguments.data_dir)
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
    )
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
            f"\ntime is over after {len(found.trials)} of {arguments.trials} trials: "
            "the same command again goes on"
        )
    print(f"\nbest: trial {found.best.number}; {shlex.join(calibrate)} makes a detector of it")


def _calibrate(arguments) -> None:
    from tfbnood.cli.commands import calibrate

    calibrate(
        arguments.run_folders,
        statistic=arguments.statistic,
        out=arguments.out,
        images=arguments.images,
        data_dir=arguments.data_dir,
    )


def _score(arguments) -> None:
    style = "json" if arguments.json else "csv" if arguments.csv else "table"
    if arguments.url is not None:
        from tfbnood.cli.serving_command import score_by_server

        if arguments.fpr is not None or arguments.fdr is not None:
            raise TfbnoodError("--fpr and --fdr do not go with --url: the export has set the rate")
        score_by_server(arguments.url, arguments.detector, arguments.images, style=style)
        return
    from tfbnood.cli.commands import score

    score(
        arguments.detector,
        arguments.images,
        fpr=arguments.fpr,
        fdr=arguments.fdr,
        skip_unreadable=arguments.skip_unreadable,
        style=style,
    )


def _evaluate(arguments) -> None:
    from tfbnood.cli.commands import evaluate

    evaluate(
        arguments.detector,
        arguments.inliers,
        arguments.outliers,
        statistics=arguments.statistics,
        contamination=tuple(arguments.contamination),
        n=arguments.n,
        seed=arguments.seed,
        data_dir=arguments.data_dir,
        out=arguments.out,
        as_json=arguments.json,
    )


def _export(arguments) -> None:
    from tfbnood.cli.commands import export

    export(
        arguments.detector,
        out=arguments.out,
        fpr=arguments.fpr,
        data=arguments.data,
        embed=arguments.embed,
        data_dir=arguments.data_dir,
    )


def _serve(arguments) -> int:
    from tfbnood.serving.launch import serve

    return serve(
        arguments.path,
        port=arguments.port,
        host=arguments.host,
        stand_in=arguments.stand_in,
        merge=arguments.merge,
    )


def _reproduce(arguments) -> None:
    from tfbnood.reproduce.page import page_as_markdown
    from tfbnood.reproduce.run import reproduce

    sections = reproduce(
        arguments.what,
        arguments.out,
        scale=arguments.scale,
        n=arguments.n,
        batches=arguments.batches,
        seeds=arguments.seeds,
        data_dir=arguments.data_dir,
        runs=arguments.runs,
        only=arguments.only,
        finished=arguments.finished,
    )
    print(page_as_markdown(f"{arguments.what}: {arguments.out}", sections))
