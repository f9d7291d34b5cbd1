"""The command `tfbnood`. Heavy imports happen inside the subcommands, so that `--help` answers at once."""

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

from tfbnood._version import __version__
from tfbnood.errors import TfbnoodError

__all__ = ["main"]

MODEL_NAMES = ("realnvp", "vae", "pixelcnn")
PRESET_NAMES = ("paper-grey", "paper-colour", "cpu-grey", "cpu-colour", "tiny")
_CPP_LOG = re.compile(rb"[IWE]\d{4} \d\d:\d\d:|WARNING: All log messages before absl::")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; a mistake of the user's is one line on standard error and exit code 2."""
    arguments = _parser().parse_args(argv)
    try:
        with _quiet_tensorflow():
            return arguments.run(arguments) or 0
    except TfbnoodError as error:
        print(f"tfbnood: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tfbnood: interrupted", file=sys.stderr)
        return 130


@contextlib.contextmanager
def _quiet_tensorflow() -> Iterator[None]:
    """Keeps the C++ log of TensorFlow off the terminal, unless TF_CPP_MIN_LOG_LEVEL asks for it."""
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") in ("0", "1"):
        yield
        return
    # The level does not reach what is said during the import: https://github.com/tensorflow/tensorflow/issues/100442
    finder = _QuietImport()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _QuietImport(importlib.abc.MetaPathFinder):
    """Whenever TensorFlow comes to be imported, sieves its C++ log from standard error meanwhile."""

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _without_cpp_log(lambda: execute(module))
        return spec


def _without_cpp_log(action: Callable[[], None]) -> None:
    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        terminal = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            action()
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            said.seek(0)
            for line in said:
                if not _CPP_LOG.match(line):
                    os.write(2, line)


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
    return parser


def _add_demo(commands) -> None:
    command = commands.add_parser(
        "demo",
        help="the whole job on scikit-learn's 8×8 digits, in about 3 minutes",
        description="Trains on scikit-learn's 8×8 digits and shows what the model makes of images that are none.",
    )
    command.add_argument("--out", default="demo", help="folder of the results (default: demo)")
    command.add_argument("--steps", type=int, default=900, help="training steps (default: 900)")
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
    command.add_argument("--checkpoint-every", type=int, default=100, metavar="STEPS")
    command.set_defaults(run=_train)


def _demo(arguments) -> None:
    from tfbnood.demo import demo

    demo(arguments.out, steps=arguments.steps)


def _data(arguments) -> None:
    from tfbnood.data import describe

    print(describe(arguments.names, data_dir=arguments.data_dir, as_json=arguments.json))


def _train(arguments) -> None:
    from tfbnood.data import load
    from tfbnood.training import train

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
        checkpoint_every=arguments.checkpoint_every,
    )
    print(f"trained {network.name}: {arguments.out}/model.keras, {arguments.out}/run.json")


if __name__ == "__main__":
    sys.exit(main())
