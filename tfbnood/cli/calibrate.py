"""`tfbnood calibrate`: makes a detector from trained models."""

import argparse
import json
import pathlib
import sys
from typing import Any

from tfbnood.cli import checks, options, values
from tfbnood.errors import TfbnoodError

__all__ = ["add", "run"]

# What a detector records about its training run: no paths of this machine.
_KEPT = (
    *("data", "model", "preset", "steps", "batch_size", "learning_rate", "seed", "jit"),
    *("train_images", "train_sha256", "seconds", "result"),
)


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "calibrate",
        help="make a detector from a trained model",
        description="Makes a detector from a run of `tfbnood train`, calibrated on the run's held-out images.",
    )
    command.add_argument(
        "folders", nargs="+", metavar="RUN", help="folder of a run; several for waic"
    )
    command.add_argument(
        "--statistic",
        type=values.statistic,
        default="auto",
        help='name, or name with settings: bn_delta:{"r1": 0} (default: auto, which also trains small networks, a few '
        'minutes for many images; ensemble:{"pretext": false} skips them)',
    )
    command.add_argument(
        "--images", type=values.integer(1), help="held-out images to use (default: all)"
    )
    command.add_argument(
        "--clusters",
        type=values.integer(2),
        metavar="N",
        help="control the false-alarm rate in each of N clusters of the training images, e.g. 10 (default: overall)",
    )
    options.data_dir(command)
    options.out(command, "folder of the detector", required=True)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Calibrates one run, or several together for waic, and saves the detector."""
    folders = [pathlib.Path(folder) for folder in arguments.folders]
    runs = [_read_run(folder) for folder in folders]
    names = sorted({description["data"] for description in runs})
    if len(names) > 1:
        raise TfbnoodError(f"RUNs must share one data set. Received: {', '.join(names)}")
    checks.check_data_sets("the data set of RUN", names, arguments.data_dir)
    checks.check_out(arguments.out)
    out = pathlib.Path(arguments.out)
    if out.exists() and not (out / "detector.json").is_file():
        raise TfbnoodError(
            f"--out must be a new folder, or the folder of a detector to replace. Received: {out}"
        )
    from tfbnood.data.sets import load
    from tfbnood.detector import Detector
    from tfbnood.saving import load_model

    dataset = load(names[0], data_dir=arguments.data_dir)
    models = [load_model(folder / "model.keras") for folder in folders]
    detector = Detector(
        models[0] if len(models) == 1 else models,
        arguments.statistic.make(),
        reference=dataset.train,
        progress=True,
    )
    held_out = dataset.calibration[: arguments.images]
    detector.about = {
        "runs": [{key: description.get(key) for key in _KEPT} for description in runs],
        "calibration_images": len(held_out),
    }
    print(
        f"calibrating {arguments.statistic.text} on {len(held_out)} held-out images of {dataset.name}",
        file=sys.stderr,
    )
    detector.calibrate(held_out, clusters=arguments.clusters, progress=True).save(out)
    print(f"detector: {out}")


def _read_run(folder: pathlib.Path) -> dict[str, Any]:
    """Reads the run.json of a finished run."""
    try:
        found = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        found["data"]
    except (OSError, ValueError, KeyError, TypeError):
        reason = "has no readable run.json" if folder.is_dir() else "does not exist"
        raise TfbnoodError(
            f"RUN must be a folder of `tfbnood train`, with run.json. Received: {folder}, which {reason}"
        ) from None
    if not (folder / "model.keras").is_file():
        raise TfbnoodError(
            f"RUN must be finished. Received: {folder}, which has no model.keras; "
            "run the same `tfbnood train` again"
        )
    return found
