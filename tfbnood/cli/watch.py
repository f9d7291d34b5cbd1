"""`tfbnood watch`: detects that a stream of images has changed, since when, and which images show it.

Files are scored in this process, by TensorFlow. With --url or --scores it is not imported at all.
"""

import argparse
import functools
import os
import pathlib
import sys
from typing import Any

from tfbnood.cli import checks, options, values
from tfbnood.errors import TfbnoodError

__all__ = ["add", "run"]

_PORT = 8502


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "watch",
        help="follow a stream of images and raise an alarm when it changes",
        description="Follows a folder, lines of standard input or the answers of a served model, with a bound on false "
        "alarms. Stop it at any time; run the same command again to resume. No image is counted twice.",
        epilog="Exit codes: 0 at the end or after Ctrl-C, 3 after an alarm with --until-alarm, 2 for mistakes or a "
        "full disk.",
    )
    command.add_argument(
        "detector",
        metavar="WHAT",
        help="folder of a detector, a model base that holds one, or name of a shipped one, e.g. fashion_mnist_vae",
    )
    command.add_argument(
        "where",
        metavar="WHERE",
        nargs="?",
        help="folder to follow, including its subfolders; or - for paths on standard input, one per line",
    )
    options.out(
        command,
        "folder for events.jsonl, timeline.html and the state; an existing one is resumed",
        required=True,
    )
    command.add_argument(
        "--url",
        help="instead of WHERE: sit between clients and a served model, e.g. http://127.0.0.1:8501/v1/models/NAME",
    )
    command.add_argument(
        "--port",
        type=values.integer(0, 65535),
        help=f"with --url: port for clients (default: {_PORT})",
    )
    command.add_argument("--host", help="with --url: address to listen on (default: 127.0.0.1)")
    command.add_argument(
        "--scores",
        action="store_true",
        help='with -: lines are scores, each a number or {"key": "a.png", "score": 1.5}',
    )
    command.add_argument(
        "--run-length",
        type=_parse_run_length,
        default=10_000,
        metavar="N",
        help="average number of images between false alarms, as a lower bound (default: 10000)",
    )
    command.add_argument(
        "--fpr",
        type=values.RATE,
        help="flag single images at this false-alarm rate (default: 0.01, or the smallest possible)",
    )
    command.add_argument(
        "--fdr",
        type=values.RATE,
        help="also report single outliers, of which at most this share is false",
    )
    command.add_argument(
        "--thin",
        type=values.integer(1),
        metavar="N",
        help="bet on every N-th image (default: chosen from the autocorrelation)",
    )
    options.seed(command)
    command.add_argument(
        "--interval",
        type=values.POSITIVE,
        metavar="SECONDS",
        help="time between two looks into the folder (default: 1)",
    )
    command.add_argument("--once", action="store_true", help="end when all files have been read")
    command.add_argument(
        "--until-alarm", action="store_true", help="end with exit code 3 when the alarm is on"
    )
    command.add_argument(
        "--restart",
        action="store_true",
        help="clear the alarm, then watch; if another process is watching in --out, it clears the alarm instead",
    )
    command.add_argument(
        "--forget",
        action="store_true",
        help="with --restart: stop comparing with the unusual images, after a change that was fixed",
    )
    command.add_argument(
        "--metrics-port",
        type=values.integer(0, 65535),
        metavar="PORT",
        help="serve Prometheus metrics at http://127.0.0.1:PORT/metrics; 0 picks a free port",
    )
    command.add_argument(
        "--log-size",
        type=values.integer(1),
        default=64,
        metavar="MB",
        help="size at which events.jsonl is renamed to events-000001.jsonl (default: 64)",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Watches until Ctrl-C, the end of the source or an alarm."""
    _check(arguments)
    folder, version = checks.find_detector(arguments.detector)
    if folder is None:
        raise TfbnoodError(
            "WHAT must hold the detector itself: an exported version has no list of held-out scores. "
            f"Received: {version}; give the folder of the detector"
        )
    checks.check_out(arguments.out)
    from tfbnood.watch import Session, read_held_out
    from tfbnood.watch.run import Watch

    held_out = read_held_out(folder, pathlib.Path(arguments.detector).name or arguments.detector)
    least = held_out.smallest_rate
    if arguments.fpr is not None and arguments.fpr < least:
        raise TfbnoodError(
            f"--fpr must be at least 1/(n + 1) = {least:.2g}: n = {1 / least - 1:.0f} held-out images. "
            f"Received: {arguments.fpr:g}"
        )
    where = arguments.where
    stream = arguments.url or ("standard input" if where == "-" else where)
    kind = "proxy" if arguments.url else "lines" if where == "-" else os.path.abspath(where)
    out = pathlib.Path(arguments.out)
    watch = Watch(
        out,
        stream,
        functools.partial(
            Session.open,
            out,
            held_out,
            run_length=arguments.run_length,
            seed=arguments.seed,
            thin=arguments.thin,
            fdr=arguments.fdr,
            fpr=arguments.fpr,
            stream=kind,
            most_bytes=arguments.log_size * 2**20,
        ),
        functools.partial(_open_source, arguments, folder, held_out),
        until_alarm=arguments.until_alarm,
        restart=arguments.restart,
        forget=arguments.forget,
        metrics_port=arguments.metrics_port,
    )
    return watch.run()


def _check(arguments: argparse.Namespace) -> None:
    """Refuses options that cannot be combined."""
    where, url = arguments.where, arguments.url
    if (where is None) == (url is None):
        received = "neither" if url is None else f"{where} and {url}"
        raise TfbnoodError(f"give WHERE or --url. Received: {received}")
    if url is not None:
        from tfbnood.watch.proxy import split_url

        split_url(url)
    elif where != "-" and not pathlib.Path(where).is_dir():
        kind = "is a file" if pathlib.Path(where).exists() else "does not exist"
        raise TfbnoodError(
            f"WHERE must be a folder, or - for standard input. Received: {where}, which {kind}"
        )
    pairs = (
        (arguments.port is not None, "--port", url is not None, "--url"),
        (arguments.host is not None, "--host", url is not None, "--url"),
        (arguments.scores, "--scores", where == "-", "- as WHERE"),
        (arguments.once, "--once", where not in (None, "-"), "a folder as WHERE"),
        (
            arguments.interval is not None,
            "--interval",
            where not in (None, "-"),
            "a folder as WHERE",
        ),
        (arguments.forget, "--forget", arguments.restart, "--restart"),
    )
    for given, option, fits, needed in pairs:
        if given and not fits:
            raise TfbnoodError(f"{option} needs {needed}. Received: {option} without it")


def _open_source(
    arguments: argparse.Namespace, folder: pathlib.Path, held_out: Any, session: Any
) -> Any:
    """Opens the source after all checks: scoring imports TensorFlow."""
    if arguments.url is not None:
        from tfbnood.watch.proxy import ProxySource

        source = ProxySource(
            arguments.url,
            held_out,
            address=(
                arguments.host or "127.0.0.1",
                _PORT if arguments.port is None else arguments.port,
            ),
            lost=dict(session.tally.requests),
            requests=session.tally.requests_seen,
        )
        path = f"{source.url}/v1/models/{source.model}"
        print(f"listening: point the clients of {arguments.url} at {path}", flush=True)
        return source
    from tfbnood.watch.lines import LineSource, path_reader, score_reader

    if arguments.scores:
        return LineSource(sys.stdin, score_reader(held_out.groups is not None), session.tally)
    print(f"loading {held_out.name} …", flush=True)
    score = _make_scorer(folder, held_out)
    print(f"watching {arguments.where if arguments.where != '-' else 'standard input'}", flush=True)
    if arguments.where == "-":
        return LineSource(sys.stdin, path_reader(held_out.image_shape, score), session.tally)
    from tfbnood.watch.folder import FolderSource

    return FolderSource(
        pathlib.Path(arguments.where),
        held_out.image_shape,
        score,
        session.tally,
        interval=arguments.interval or 1.0,
        once=arguments.once,
    )


def _make_scorer(folder: pathlib.Path, held_out: Any) -> Any:
    """A function from images to scores, and to clusters if the detector has any."""
    import numpy as np

    from tfbnood.detector import Detector

    detector = Detector.load(folder)
    if held_out.groups is not None:

        def score_within(images: Any) -> Any:
            found = detector.predict(images, progress=False)
            return found.score, found.cluster

        return score_within
    if not held_out.alone:
        return functools.partial(detector.score, progress=False)
    # With a batch statistic, an image's score depends on the images beside it.
    return lambda images: np.concatenate(
        [detector.score(images[row : row + 1]) for row in range(len(images))]
    )


def _parse_run_length(text: str) -> float:
    value = values.POSITIVE(text)
    if value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number of images above 1. Received: {text}")
    return int(value) if value == int(value) else value
