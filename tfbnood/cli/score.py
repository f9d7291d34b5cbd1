"""`tfbnood score`: which images are out-of-distribution, by a detector here or by one behind a server.

With --url TensorFlow is not imported at all.
"""

import argparse
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfbnood.cli import checks, options, values
from tfbnood.cli.listing import print_listing
from tfbnood.errors import TfbnoodError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "score",
        help="find the images that are out-of-distribution",
        description="Scores a folder of PNG and JPEG images, an npz or an npy file, and lists the flagged images.",
    )
    options.detector(command, "; with --url the name of a served model")
    command.add_argument("images", metavar="IMAGES", help="folder of images, .npz or .npy")
    command.add_argument(
        "--url", help="ask a server, e.g. http://127.0.0.1:8501, instead of loading a detector"
    )
    rates = command.add_mutually_exclusive_group()
    options.fpr(rates, default=None)
    rates.add_argument(
        "--fdr", type=values.RATE, help="share of false alarms among the alarms, instead"
    )
    command.add_argument(
        "--skip-unreadable", action="store_true", help="leave out files that are not images"
    )
    formats = command.add_mutually_exclusive_group()
    options.as_json(formats, "print JSON, all images")
    formats.add_argument("--csv", action="store_true", help="print CSV, all images")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Scores the images and prints a table, JSON or CSV."""
    path = pathlib.Path(arguments.images)
    files = _files(path)
    if arguments.url is None:
        folder = checks.detector_folder(arguments.detector)
    elif arguments.fpr or arguments.fdr or arguments.skip_unreadable:
        raise TfbnoodError(
            "--fpr, --fdr and --skip-unreadable do not go with --url: the export has set the rate, and the "
            "server marks what it cannot read"
        )
    pixels = None
    if not files:
        from tfbnood.data.formats import from_npz

        pixels = from_npz(path)  # Before TensorFlow, so that a damaged file is refused at once.
    if arguments.url is None:
        files, scored, about, sentence = _score_here(arguments, folder, pixels)
    else:
        scored, about, sentence = _ask_server(arguments, files, pixels)
    names = [str(file.relative_to(path)) for file in files]
    names = names or [f"{path.name}[{index}]" for index in range(len(scored))]
    style = "json" if arguments.json else "csv" if arguments.csv else "table"
    print_listing(names, scored, style, about=about, sentence=sentence)


def _files(path: pathlib.Path) -> Sequence[pathlib.Path]:
    """The images of a folder; none for a file with an array."""
    if path.is_dir():
        from tfbnood.data.folders import SUFFIXES

        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        if not files:
            raise TfbnoodError(
                f"IMAGES must be a folder with .png, .jpg or .jpeg files. Received: {path} without any"
            )
        return files
    if path.suffix not in (".npz", ".npy") or not path.is_file():
        missing = "" if path.exists() else ", which does not exist"
        raise TfbnoodError(
            f"IMAGES must be a folder, an .npz or an .npy file. Received: {path}{missing}"
        )
    return []


def _score_here(
    arguments: argparse.Namespace, folder: pathlib.Path, pixels: "np.ndarray | None"
) -> tuple[Sequence[pathlib.Path], Any, dict[str, Any], str]:
    from tfbnood.data.folders import from_folder
    from tfbnood.detector import Detector

    detector = Detector.load(folder)
    files: Sequence[pathlib.Path] = []
    if pixels is None:
        found = from_folder(
            arguments.images, detector.image_shape, skip_unreadable=arguments.skip_unreadable
        )
        files, pixels = found.paths, found.images
    result = detector.predict(pixels, fpr=arguments.fpr, fdr=arguments.fdr, progress=True)
    about = {
        "statistic": result.statistic,
        "rule": result.rule,
        "assumed": result.assumed,
        "out_of_distribution": int(result.is_ood.sum()),
        "of": len(result),
    }
    return files, result, about, str(result)


def _ask_server(
    arguments: argparse.Namespace, files: Sequence[pathlib.Path], pixels: "np.ndarray | None"
) -> tuple[Any, dict[str, Any], str]:
    from tfbnood.serving.client import Client

    url, model = arguments.url, arguments.detector
    client = Client(url, model)
    found = client.score_files(files) if pixels is None else client.score(pixels)
    count = int(found.is_ood.sum())
    about = {"model": model, "url": url, "out_of_distribution": count, "of": len(found)}
    return found, about, f"{count} of {len(found)} images out-of-distribution by {model} at {url}"
