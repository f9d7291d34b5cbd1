"""`tfbnood fit`: makes a calibrated detector from a folder of images."""

import argparse
import pathlib
from typing import Any

from tfbnood.cli import checks, options, values
from tfbnood.errors import TfbnoodError

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "fit",
        help="make a detector from a folder of images",
        description="Chooses a network or a model that suits the images and the time available, fits and calibrates a "
        "detector, and writes it together with a page about it.",
    )
    command.add_argument(
        "images", metavar="IMAGES", help="folder of images, .npz file, or name of a data set"
    )
    options.out(command, "folder of the detector", required=True)
    command.add_argument(
        "--minutes",
        type=values.POSITIVE,
        default=10.0,
        help="approximate time limit (default: 10)",
    )
    command.add_argument(
        "--network",
        default="auto",
        metavar="NAME",
        help="a name of tfbnood.networks.names(), or none for a likelihood model (default: the installed one)",
    )
    command.add_argument(
        "--size",
        type=values.integer(32),
        help="side of the images inside the network (default: 128, or 224 for large photographs)",
    )
    command.add_argument(
        "--tolerate",
        nargs="+",
        default=(),
        metavar="CHANGE",
        help="changes that must not raise alarms: jpeg resize brightness contrast blur noise shift mirror",
    )
    command.add_argument(
        "--skip-unreadable", action="store_true", help="skip files that are not images"
    )
    options.seed(command)
    options.data_dir(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Fits a detector; reports what was chosen, the outcome and the next command."""
    out = pathlib.Path(arguments.out)
    checks.check_data_sets("IMAGES", [arguments.images], arguments.data_dir)
    checks.check_out(arguments.out)
    if out.exists() and not (out / "detector.json").is_file() and any(out.iterdir()):
        raise TfbnoodError(
            f"--out must be a new folder, or the folder of a detector to replace. Received: {out}"
        )
    from tfbnood.fitting.plan import make_plan

    plan = make_plan(
        arguments.images,
        minutes=arguments.minutes,
        network=arguments.network,
        size=arguments.size,
        tolerate=tuple(arguments.tolerate),
        data_dir=arguments.data_dir,
    )
    for reason in plan.reasons:
        print(reason, flush=True)
    from tfbnood.fitting.run import fit

    made = fit(
        plan,
        out,
        data_dir=arguments.data_dir,
        skip_unreadable=arguments.skip_unreadable,
        seed=arguments.seed,
        say=lambda text: print(text, flush=True),
    )
    from tfbnood.report.results import write_detector_report

    notes = _describe_outcome(made)
    write_detector_report(
        out / "report.html", made.detector, made.dataset.test, name=str(out), notes=notes
    )
    print("\n".join(notes))
    print(f"detector: {out}  (report: {out / 'report.html'})")
    print(f"next: tfbnood score {out} NEW_IMAGES --out report.html")


def _describe_outcome(made: Any) -> list[str]:
    """Describes what the detector can do, and how it does on unseen images."""
    from tfbnood.calibration.rates import default_false_alarm_rate
    from tfbnood.data.file_summary import sentences

    detector, test = made.detector, made.dataset.test
    count = len(detector.calibration.null_of_images(1))
    rate = default_false_alarm_rate(count)
    flagged = int(detector.predict(test, fpr=rate).is_ood.sum())
    lines = [
        f"Fitted in {made.seconds:.0f} seconds.",
        f"{count} calibration images allow false-alarm rates of at least 1/{count + 1} = {1 / (count + 1):.2g}; "
        f"the default is {rate:g}.",
        f"{flagged} of {len(test)} unseen images {'is' if flagged == 1 else 'are'} flagged at {rate:g}.",
    ]
    if made.dataset.files is not None:
        lines += sentences(made.dataset.files)
    return lines
