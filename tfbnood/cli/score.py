"""`tfbnood score`: finds out-of-distribution images with a local or a served detector.

With --url TensorFlow is not imported at all; with --runner only Beam's workers import it.
"""

import argparse
import pathlib
import sys
import types
from collections.abc import Collection
from typing import Any

from tfbnood.cli import checks, options, score_beam, values
from tfbnood.cli.listing import SUFFIXES, print_listing, write_listing
from tfbnood.cli.sources import Images, find_images
from tfbnood.errors import TfbnoodError

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "score",
        help="find the images that are out-of-distribution",
        description="Scores images, prints a summary and the most suspicious ones, and writes all of them with --out.",
    )
    command.add_argument(
        "detector",
        metavar="WHAT",
        help="folder of a detector, a model base for TF Serving, or name of a shipped one, e.g. fashion_mnist_vae; "
        "with --url the name of a served model",
    )
    command.add_argument(
        "images",
        metavar="WHERE",
        help="folder, image file, pattern such as 'photos/*.jpg', .npz or .npy file",
    )
    command.add_argument(
        "--out",
        type=_parse_out,
        help="write the scores of all images to this file: .html (a page to browse), .csv, .json or .parquet; with "
        "--runner to shards: .jsonl, .csv or .parquet",
    )
    command.add_argument(
        "--url", help="ask a server, e.g. http://127.0.0.1:8501, instead of loading a detector"
    )
    rates = command.add_mutually_exclusive_group()
    options.fpr(rates, default=None)
    rates.add_argument(
        "--fdr", type=values.RATE, help="instead: share of false alarms among the alarms"
    )
    command.add_argument(
        "--skip-unreadable", action="store_true", help="skip files that are not images"
    )
    command.add_argument(
        "--top",
        type=values.integer(0),
        metavar="N",
        help="list the N most suspicious images (default: the flagged ones, at least 10 and at most 40)",
    )
    formats = command.add_mutually_exclusive_group()
    options.as_json(formats, "print all images as JSON")
    formats.add_argument("--csv", action="store_true", help="print all images as CSV")
    score_beam.add(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Scores the images, prints a summary, JSON or CSV, and writes the file."""
    if arguments.runner is not None:
        score_beam.run(arguments)
        return
    score_beam.check_absent(arguments)
    if arguments.url is not None:
        if arguments.fpr or arguments.fdr or arguments.skip_unreadable:
            raise TfbnoodError(
                "--fpr, --fdr and --skip-unreadable cannot be combined with --url: the rate is fixed in the export, "
                "and the server marks what it cannot read"
            )
        if arguments.out is not None and arguments.out.suffix == ".html":
            raise TfbnoodError(
                "--out must end in .csv, .json or .parquet with --url: a page needs the detector itself. "
                f"Received: {arguments.out}"
            )
        images = find_images(arguments.images)
        _finish(arguments, *_ask_server(arguments, images))
        return
    folder, version = checks.find_detector(arguments.detector)
    images = find_images(arguments.images)
    if folder is not None:
        _score_here(arguments, folder, images)
    else:
        assert version is not None
        _score_by_export(arguments, version, images)


def _score_here(arguments: argparse.Namespace, folder: pathlib.Path, images: Images) -> None:
    from tfbnood.detector import Detector

    detector = Detector.load(folder)
    chunks = images.chunks(detector.image_shape, skip_unreadable=arguments.skip_unreadable)
    result = detector.predict(chunks, fpr=arguments.fpr, fdr=arguments.fdr)
    about = {
        "statistic": result.statistic,
        "rule": result.rule,
        "assumed": result.assumed,
        "out_of_distribution": int(result.is_ood.sum()),
        "of": len(result),
    }
    converted = _describe_files(images, detector.image_shape, detector.about, detector.tolerate)
    sentences = [str(result), *_describe_batch(result, detector), *converted]
    if arguments.out is not None and arguments.out.suffix == ".html":
        from tfbnood.calibration.rates import default_false_alarm_rate
        from tfbnood.report.results import write_score_report

        assert detector.calibration is not None
        write_score_report(
            arguments.out,
            detector,
            result,
            names=images.names,
            read=images.reader(detector.image_shape),
            fpr=arguments.fpr or default_false_alarm_rate(detector.calibration.fewest),
            fdr=arguments.fdr,
            converted=converted,
            progress=True,
        )
    _finish(arguments, images.names, result, {**about, "files": converted}, sentences)


def _score_by_export(arguments: argparse.Namespace, version: pathlib.Path, images: Images) -> None:
    from tfbnood.export.read import ExportedDetector

    if arguments.fpr or arguments.fdr:
        raise TfbnoodError(
            "--fpr and --fdr cannot be combined with an exported model, whose rate is fixed: give the detector's "
            "folder. "
            f"Received: {version}"
        )
    if arguments.out is not None and arguments.out.suffix == ".html":
        raise TfbnoodError(
            f"--out must end in .csv, .json or .parquet for an exported model. Received: {arguments.out}"
        )
    detector = ExportedDetector(version)
    shape = detector.image_shape
    chunks = images.chunks(shape, skip_unreadable=arguments.skip_unreadable)
    found = types.SimpleNamespace(**detector.predict(chunks))
    count, of = int(found.is_ood.sum()), len(found.score)
    about = {"model": str(version), "fpr": detector.fpr, "out_of_distribution": count, "of": of}
    tolerate = detector.about.get("tolerate", ())
    converted = _describe_files(images, shape, detector.about, tolerate)
    sentence = f"{count} of {of} images out-of-distribution by {version} (false-alarm rate {detector.fpr:g})"
    _finish(arguments, images.names, found, {**about, "files": converted}, [sentence, *converted])


def _ask_server(
    arguments: argparse.Namespace, images: Images
) -> tuple[list[str], Any, dict[str, Any], list[str]]:
    from tfbnood.serving.client import Client

    url, model = arguments.url, arguments.detector
    client = Client(url, model)
    if images.is_array:
        found = client.score(next(images.chunks((0, 0, 0))))
        names = images.names
    else:
        files = images.list_files()
        found = client.score_files(files)
        names = [images.name_of(file) for file in files]
    count = int(found.is_ood.sum())
    about = {"model": model, "url": url, "out_of_distribution": count, "of": len(found)}
    sentence = f"{count} of {len(found)} images out-of-distribution by {model} at {url}"
    return names, found, about, [sentence]


def _finish(
    arguments: argparse.Namespace,
    names: list[str],
    scored: Any,
    about: dict[str, Any],
    sentences: list[str],
) -> None:
    """Writes the file, if requested, and prints the result."""
    if arguments.out is not None:
        if arguments.out.suffix != ".html":
            write_listing(arguments.out, names, scored, about=about)
        sentences = [*sentences, f"written: {arguments.out}"]
    style = "json" if arguments.json else "csv" if arguments.csv else "table"
    print_listing(names, scored, style, about=about, sentences=sentences, top=arguments.top)
    if style != "table":
        print(*sentences[1:], sep="\n", file=sys.stderr)


def _describe_files(
    images: Images,
    image_shape: tuple[int, int, int],
    about: dict[str, Any],
    tolerate: Collection[str],
) -> list[str]:
    """Describes how the files were converted, and how they differ from the calibration images."""
    if images.summary is None:
        return []
    from tfbnood.data.file_summary import of_arrays, sentences

    known = about.get("files") or of_arrays(image_shape)
    return sentences(images.summary, calibrated_on=known, tolerate=tolerate)


def _describe_batch(result: Any, detector: Any) -> list[str]:
    from tfbnood.report.results import describe_batch

    found = describe_batch(result, detector)
    if found is None:
        return []
    p_value, method = found
    return [
        f"As a whole: p = {p_value:.3g}, the share of batches of ordinary images that look as strange ({method})."
    ]


def _parse_out(text: str) -> pathlib.Path | str:
    """A file whose suffix gives the format; a URL stays text."""
    path = pathlib.Path(text)
    known = tuple(dict.fromkeys((*SUFFIXES, *score_beam.SUFFIXES)))
    if path.suffix not in known:
        raise argparse.ArgumentTypeError(f"must end in {', '.join(known)}. Received: {text}")
    if "://" in text:
        return text
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"must be in an existing folder. Received: {text}")
    if not checks.is_writable(path.absolute().parent):
        raise argparse.ArgumentTypeError(f"must be in a writable folder. Received: {text}")
    return path
