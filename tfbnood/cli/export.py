"""`tfbnood export`: writes a detector as a SavedModel for TF Serving, or as an ONNX file."""

import argparse
import pathlib
import sys
from typing import Any

from tfbnood.cli import checks, options, values
from tfbnood.errors import TfbnoodError

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "export",
        help="write a detector as a SavedModel for TF Serving, or as an ONNX file",
        description="Writes the next version of a model base, OUT/<integer>, with signatures for TF Serving; or an "
        "ONNX file for onnxruntime, Triton and KServe.",
    )
    options.detector(command)
    options.out(
        command, "the model base, e.g. savedmodels/NAME, or a file NAME.onnx", required=True
    )
    command.add_argument(
        "--format",
        choices=("savedmodel", "onnx"),
        help="file format (default: onnx if OUT ends in .onnx, else savedmodel)",
    )
    options.fpr(command)
    command.add_argument(
        "--confidence",
        type=values.RATE,
        metavar="SHARE",
        help="add is_ood_certified: alarms whose rate is at most --fpr with this confidence, e.g. 0.95",
    )
    command.add_argument(
        "--data",
        help="data set whose held-out images calibrate score_batch (default: the detector's)",
    )
    options.data_dir(command)
    command.add_argument(
        "--embed",
        type=values.integer(0),
        default=0,
        metavar="IMAGES",
        help="training images to store in the export, for score_batch with mixed samples (default: 0, mixed moments)",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Writes the next version of a model base, or an ONNX file."""
    folder = checks.detector_folder(arguments.detector)
    if arguments.data is not None:
        checks.check_data_sets("--data", [arguments.data], arguments.data_dir)
    is_file = pathlib.Path(arguments.out).suffix == ".onnx"
    if arguments.format == "onnx" or (arguments.format is None and is_file):
        _run_onnx(folder, arguments)
        return
    checks.check_out(arguments.out)
    from tfbnood._core.sampling import sample_of
    from tfbnood.data.own import own_path
    from tfbnood.data.sets import load
    from tfbnood.detector import Detector

    detector = Detector.load(folder)
    runs = detector.about.get("runs") or [{}]
    data = arguments.data or runs[0].get("data") or detector.about.get("data")
    held_out = embedded = None
    gone = data is not None and (path := own_path(data)) is not None and not path.exists()
    if data is None or gone:
        print(
            "no held-out images: score_batch is left out; name a data set or a folder with --data to include it",
            file=sys.stderr,
        )
    else:
        shape = detector.image_shape if own_path(data) else None
        dataset = load(data, data_dir=arguments.data_dir, image_shape=shape)
        held_out = dataset.calibration
        embedded = sample_of(dataset.train, arguments.embed) if arguments.embed else None
    version = detector.export(
        arguments.out,
        fpr=arguments.fpr,
        confidence=arguments.confidence,
        held_out=held_out,
        embed=embedded,
        progress=True,
    )
    print(f"exported: {version}")


def _run_onnx(folder: pathlib.Path, arguments: argparse.Namespace) -> None:
    out = pathlib.Path(arguments.out)
    if arguments.data is not None or arguments.embed:
        raise TfbnoodError(
            "--data and --embed belong to score_batch, which an ONNX file does not have. Received: --out "
            f"{out} as onnx"
        )
    if out.is_dir():
        raise TfbnoodError(
            f"--out must be a file, e.g. model.onnx. Received: {out}, which is a folder"
        )
    checks.check_out(str(out.parent))
    from tfbnood.detector import Detector
    from tfbnood.export.onnx import export_onnx

    path = export_onnx(
        Detector.load(folder), out, fpr=arguments.fpr, confidence=arguments.confidence
    )
    print(f"exported: {path}")
