"""The command `tfbnood`: one file per command; heavy imports wait until the arguments have been checked."""

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from typing import NoReturn

from tfbnood._core.quiet import quiet_tensorflow
from tfbnood._version import __version__
from tfbnood.cli import (
    calibrate,
    data,
    demo,
    evaluate,
    export,
    fit,
    models,
    reproduce,
    score,
    serve,
    train,
    tune,
    watch,
)
from tfbnood.cli.values import did_you_mean
from tfbnood.errors import TfbnoodError

__all__ = ["main", "make_parser"]

_COMMANDS = (
    *(fit, score, watch, models, evaluate, export, serve),
    *(train, tune, calibrate, reproduce, data, demo),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. A user's mistake gives one line on standard error and exit code 2."""
    try:
        arguments = _parse(argv)
        try:
            with quiet_tensorflow():
                return arguments.run(arguments) or 0
        except TfbnoodError as error:
            raise TfbnoodError(_as_typed(str(error), _options(arguments))) from error
    except TfbnoodError as error:
        print("tfbnood:", " ".join(str(error).splitlines()), file=sys.stderr)
        return 2
    except OSError as error:  # A full or read-only disk that nothing else has reported.
        where = f"{error.filename}: " if error.filename else ""
        print(f"tfbnood: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tfbnood: interrupted", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; the parsed arguments hold the command's function as `run`."""
    parser = _Parser(
        prog="tfbnood",
        description="Detects images that do not belong to the distribution a model was trained on.",
    )
    parser.add_argument("--version", action="version", version=f"tfbnood {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add(commands)
    for command in commands.choices.values():
        command.set_defaults(parser=command)
    return parser


class _Parser(argparse.ArgumentParser):
    """Raises a `TfbnoodError` of one line for a mistake, with a suggestion for an unknown name."""

    def error(self, message: str) -> NoReturn:
        # Argparse turns the errors of our types into "argument --fpr: must …".
        ours = re.match(r"argument ([^:]+): (must .*)", message, re.DOTALL)
        text = f"{ours[1]} {ours[2]}" if ours else f"{message} (see `{self.prog} --help`)"
        raise TfbnoodError(text)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(action.choices)
            raise argparse.ArgumentError(
                action,
                f"must be one of {', '.join(known)}. Received: {value}{did_you_mean(str(value), known)}",
            )


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    words = list(sys.argv[1:] if argv is None else argv)
    passed_on: list[str] = []
    if "--" in words and any(word.partition("=")[0] == "--runner" for word in words):
        cut = words.index("--")
        words, passed_on = words[:cut], words[cut + 1 :]
    arguments, unknown = make_parser().parse_known_args(words)
    if unknown:
        hint = did_you_mean(unknown[0].partition("=")[0], _options(arguments))
        arguments.parser.error(f"unknown argument {unknown[0]}{hint}")
    if passed_on:  # for the runner
        arguments.passed_on = passed_on
    return arguments


def _options(arguments: argparse.Namespace) -> Collection[str]:
    return arguments.parser._option_string_actions.keys()


def _as_typed(message: str, options: Collection[str]) -> str:
    """An error of the library, with options in place of Python's argument names."""
    for option in options:
        name = option.removeprefix("--").replace("-", "_")
        message = re.sub(rf"^{name}(?= must )", option, message)
        if (
            "_" in name
        ):  # Names without one are also words: data, seed, model. Paths stay as they are.
            message = re.sub(rf"(?<![\w/-]){name}(=True)?(?![\w/-])", option, message)
    return message
