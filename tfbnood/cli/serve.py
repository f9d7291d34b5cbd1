"""`tfbnood serve`: serves exported detectors over REST."""

import argparse
import pathlib
from typing import Any

from tfbnood._core import shipped
from tfbnood._core.files import is_base
from tfbnood.cli import values
from tfbnood.errors import TfbnoodError
from tfbnood.serving.standin import BATCH_TIMEOUT_MICROS, MAX_BATCH_SIZE, MAX_ROWS

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "serve",
        help="serve exported detectors over REST",
        description="Runs tensorflow_model_server, its container, or a stand-in for development.",
    )
    command.add_argument(
        "path",
        metavar="PATH",
        help="model base, folder of bases, models.config, or name of a shipped detector",
    )
    command.add_argument(
        "--port", type=values.integer(0, 65535), default=8501, help="(default: 8501)"
    )
    command.add_argument("--host", default="127.0.0.1", help="(default: 127.0.0.1)")
    command.add_argument("--stand-in", action="store_true", help="always use the stand-in")
    command.add_argument(
        "--max-rows",
        type=values.integer(1),
        default=MAX_ROWS,
        metavar="N",
        help=f"stand-in: maximum rows per request (default: {MAX_ROWS})",
    )
    command.add_argument(
        "--merge",
        action="store_true",
        help="join rows of concurrent requests (server-side batching)",
    )
    command.add_argument(
        "--max-batch-size",
        type=values.integer(1),
        default=MAX_BATCH_SIZE,
        metavar="N",
        help=f"with --merge: rows per batch; larger requests are refused (default: {MAX_BATCH_SIZE})",
    )
    command.add_argument(
        "--batch-timeout-micros",
        type=values.integer(0),
        default=BATCH_TIMEOUT_MICROS,
        metavar="N",
        help=f"with --merge: how long a batch waits for other requests (default: {BATCH_TIMEOUT_MICROS})",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until Ctrl-C."""
    path = _find_base(arguments.path)
    from tfbnood.serving.launch import serve

    return serve(
        path,
        port=arguments.port,
        host=arguments.host,
        stand_in=arguments.stand_in,
        merge=arguments.merge,
        max_rows=arguments.max_rows,
        max_batch_size=arguments.max_batch_size,
        batch_timeout_micros=arguments.batch_timeout_micros,
    )


def _find_base(text: str) -> pathlib.Path:
    """The path to serve, given as a path or as the name of a shipped detector."""
    path, names = pathlib.Path(text), shipped.names()
    if not path.exists() and text in names:
        path = shipped.base(text)
        if not is_base(path):
            raise TfbnoodError(
                f"PATH must be exported first. Received: {text}, which has no version here; "
                f"run `tfbnood export {text} --out models/{text}`, then serve models/{text}"
            )
    if path.is_file() or is_base(path) or (path.is_dir() and any(map(is_base, path.iterdir()))):
        return path
    hint = ", which has no NAME/1/saved_model.pb or 1/saved_model.pb"
    if not path.exists():
        hint = values.did_you_mean(text, names) or ", which does not exist"
    elif (path / "saved_model.pb").is_file():
        hint = f", which is a single version; did you mean {path.parent}?"
    raise TfbnoodError(
        "PATH must be a model base, a folder of bases, a models.config or one of "
        f"{', '.join(names)}. Received: {text}{hint}"
    )
