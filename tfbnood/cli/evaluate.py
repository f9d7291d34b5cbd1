"""`tfbnood evaluate`: measures how well a detector distinguishes data sets."""

import argparse
import dataclasses
import json
import pathlib
import shlex
import sys
from typing import Any

from tfbnood.cli import checks, options, values
from tfbnood.errors import TfbnoodError

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "evaluate",
        help="measure how well a detector distinguishes data sets",
        description="Measures a detector's AUROC, AP and FPR at 95 % TPR, and bits per dimension in both modes.",
    )
    options.detector(command)
    command.add_argument(
        "--inliers",
        required=True,
        help="data set of in-distribution test images; or a folder or .npz file, of which all images are used",
    )
    command.add_argument(
        "--outliers",
        required=True,
        nargs="+",
        help="data sets or folders; rotation, rotation-bilinear or inverted, which are made from the inliers; or "
        "photos, scikit-learn's",
    )
    command.add_argument(
        "--statistics",
        nargs="+",
        type=values.statistic,
        help='names, or names with settings: bn_delta:{"r1": 0} (default: the detector\'s own)',
    )
    command.add_argument(
        "--contamination",
        nargs="+",
        type=values.CONTAMINATION,
        default=[1.0],
        metavar="SHARE",
        help="shares of outliers in the scored pool (default: 1, outliers alone)",
    )
    options.images_per_set(command)
    options.seed(command)
    options.data_dir(command)
    options.out(command, "folder for evaluation.json, .md, .png and .html, or one such file")
    options.as_json(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluates a detector on named data sets; prints and, with --out, saves the result."""
    from tfbnood.data.pools import MADE_OUTLIERS, outlier_set

    folder, data_dir = checks.detector_folder(arguments.detector), arguments.data_dir
    checks.check_data_sets("--inliers", [arguments.inliers], data_dir)
    checks.check_data_sets("--outliers", arguments.outliers, data_dir, also=MADE_OUTLIERS)
    if arguments.out is not None:
        _check_out(pathlib.Path(arguments.out))
    from tfbnood.data.own import own_path
    from tfbnood.detector import Detector
    from tfbnood.evaluation.run import evaluate

    detector = Detector.load(folder)
    dataset = _load_inliers(arguments.inliers, detector.image_shape, data_dir)
    chosen, seed = arguments.statistics, arguments.seed
    outliers = {
        name: _load_all(name, detector.image_shape)
        if own_path(name, data_dir)
        else outlier_set(name, dataset, seed=seed, data_dir=data_dir)
        for name in arguments.outliers
    }
    result = evaluate(
        detector,
        dataset.test,
        outliers,
        statistics=None if chosen is None else [one.make() for one in chosen],
        contamination=tuple(arguments.contamination),
        n=arguments.n,
        seed=seed,
        # The detector's own statistic is already fitted.
        reference=dataset.train if chosen else None,
        progress=True,
    )
    command = shlex.join(["tfbnood", *sys.argv[1:]])
    result = dataclasses.replace(result, provenance={**result.provenance, "command": command})
    print(json.dumps(result.to_dict(), indent=2) if arguments.json else result)
    if arguments.out is not None:
        out = pathlib.Path(arguments.out)
        if out.suffix != ".html":
            result.save(out)
        if out.suffix in ("", ".html"):
            from tfbnood.report.results import write_evaluation_report

            page = out if out.suffix else out / "evaluation.html"
            write_evaluation_report(page, detector, result, dataset.test, outliers, n=arguments.n)
        print(f"saved: {arguments.out}", file=sys.stderr)


def _load_inliers(name: str, shape: tuple[int, int, int], data_dir: str | None) -> Any:
    """Loads a data set. All images of a folder or an npz file are test images."""
    from tfbnood.data.own import own_path
    from tfbnood.data.sets import Dataset, load

    if own_path(name, data_dir) is None:
        return load(name, data_dir=data_dir)
    images = _load_all(name, shape)
    missing = f"{name} holds test images only, and fitting --statistics needs training images; leave --statistics out"
    return Dataset(name, name, {"test": images}, missing={"train": missing})


def _load_all(name: str, shape: tuple[int, int, int]) -> Any:
    import numpy as np

    from tfbnood.cli.sources import find_images

    return np.concatenate(list(find_images(name, "--inliers and --outliers").chunks(shape)))


def _check_out(path: pathlib.Path) -> None:
    """Refuses what `Evaluation.save` would refuse, before the work rather than after it."""
    if path.is_dir() or not path.suffix:
        checks.check_out(str(path))
    elif path.suffix in (".json", ".md", ".png", ".html"):
        checks.check_out(str(path.parent))
    else:
        raise TfbnoodError(
            f"--out must be a folder, or end in .json, .md, .png or .html. Received: {path}"
        )
