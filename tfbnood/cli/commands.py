"""The commands of the shell that work with detectors: `calibrate`, `score` and `evaluate`."""

import dataclasses
import json
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfbnood._core.sampling import sample_of
from tfbnood.cli.listing import print_listing
from tfbnood.data.sets import Dataset, from_folder, from_npz, load, photo_patches, rotate
from tfbnood.detector import Detector
from tfbnood.errors import DataError, StatisticError, TfbnoodError
from tfbnood.evaluation.run import evaluate as evaluate_detector
from tfbnood.saving import load_model
from tfbnood.statistics.base import Statistic
from tfbnood.statistics.registry import get

__all__ = ["calibrate", "evaluate", "export", "outlier_set", "score"]


def calibrate(
    runs: Sequence[str],
    *,
    statistic: str,
    out: str,
    images: int | None = None,
    data_dir: str | None = None,
) -> None:
    """Makes a detector of one run of `tfbnood train` (several for waic) and saves it."""
    descriptions = [_run_description(pathlib.Path(run)) for run in runs]
    names = {description["data"] for description in descriptions}
    if len(names) > 1:
        raise TfbnoodError(f"runs must have one data set. Received: {', '.join(sorted(names))}")
    dataset = load(names.pop(), data_dir=data_dir)
    models = [_load_model(pathlib.Path(run)) for run in runs]
    model = models[0] if len(models) == 1 else models
    detector = Detector(model, _statistic(statistic), reference=dataset.train, progress=True)
    detector.about = {"runs": [_provenance(description) for description in descriptions]}
    held_out = dataset.calibration[:images]
    detector.about["calibration_images"] = len(held_out)
    print(
        f"calibrating {statistic} on {len(held_out)} held-out images of {dataset.name}",
        file=sys.stderr,
    )
    detector.calibrate(held_out, progress=True).save(out)
    print(f"detector: {out}")


def score(
    detector: str,
    images: str,
    *,
    fpr: float | None = None,
    fdr: float | None = None,
    skip_unreadable: bool = False,
    style: str = "table",
) -> None:
    """Scores images from a folder or a file and prints a table, JSON or CSV."""
    loaded = Detector.load(detector)
    names, pixels = _read(pathlib.Path(images), loaded.image_shape, skip_unreadable)
    result = loaded.predict(pixels, fpr=fpr, fdr=fdr, progress=True)
    about = {
        "statistic": result.statistic,
        "rule": result.rule,
        "assumed": result.assumed,
        "out_of_distribution": int(result.is_ood.sum()),
        "of": len(result),
    }
    print_listing(names, result, style, about=about, sentence=str(result))


def evaluate(
    detector: str,
    inliers: str,
    outliers: Sequence[str],
    *,
    statistics: Sequence[str] | None = None,
    contamination: tuple[float, ...] = (1.0,),
    n: int | None = 1000,
    seed: int = 0,
    data_dir: str | None = None,
    out: str | None = None,
    as_json: bool = False,
) -> None:
    """Evaluates a saved detector on named data sets; prints and, with `out`, saves the result."""
    dataset = load(inliers, data_dir=data_dir)
    result = evaluate_detector(
        Detector.load(detector),
        dataset.test,
        {name: outlier_set(name, dataset, seed=seed, data_dir=data_dir) for name in outliers},
        statistics=None if statistics is None else [_statistic(text) for text in statistics],
        contamination=contamination,
        n=n,
        seed=seed,
        # The detector's own statistic is fitted already.
        reference=dataset.train if statistics else None,
        progress=True,
    )
    command = shlex.join(["tfbnood", *sys.argv[1:]])
    result = dataclasses.replace(result, provenance={**result.provenance, "command": command})
    print(json.dumps(result.to_dict(), indent=2) if as_json else result)
    if out is not None:
        result.save(out)
        print(f"saved: {out}", file=sys.stderr)


def export(
    detector: str,
    *,
    out: str,
    fpr: float = 0.01,
    data: str | None = None,
    embed: int = 0,
    data_dir: str | None = None,
) -> None:
    """Writes a saved detector as the next version of a model base."""
    loaded = Detector.load(detector)
    runs = loaded.about.get("runs") or [{}]
    data = data or runs[0].get("data")
    held_out = reference = None
    if data is None:
        print(
            "no held-out images: score_batch is left out; --data names a data set", file=sys.stderr
        )
    else:
        dataset = load(data, data_dir=data_dir)
        held_out = dataset.calibration
        reference = sample_of(dataset.train, embed) if embed else None
    version = loaded.export(out, fpr=fpr, held_out=held_out, embed=reference, progress=True)
    print(f"exported: {version}")


def outlier_set(
    name: str, inliers: Dataset, *, seed: int, data_dir: str | None = None
) -> np.ndarray:
    """Test images of a data set by name, or `rotation`, `inverted`, `photos`."""
    if name == "rotation":
        return rotate(inliers.test, seed=seed)
    if name == "inverted":
        return 255 - inliers.test
    if name == "photos":
        return photo_patches(1000, inliers.image_shape, seed=seed)
    return load(name, data_dir=data_dir).test


def _run_description(run: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads((run / "run.json").read_text())
    except (OSError, ValueError):
        raise TfbnoodError(
            f"RUN must be a folder of `tfbnood train`, with run.json. Received: {run}"
        ) from None


def _statistic(text: str) -> str | Statistic:
    """A statistic as typed: `bn_delta`, or with settings `bn_delta:{"r1": 0, "draws": [2, 8]}`."""
    name, colon, settings = text.partition(":")
    if not colon:
        return name  # A name alone may mean the detector's own, fitted statistic.
    try:
        return get(name, **json.loads(settings))
    except (ValueError, TypeError) as error:
        raise StatisticError(
            f'settings must be a JSON object, as in bn_delta:{{"r1": 0}}. Received: {settings} ({error})'
        ) from None


def _provenance(run: dict[str, Any]) -> dict[str, Any]:
    """What a result has to say of a training, without paths of this machine."""
    keys = ("data", "model", "preset", "steps", "batch_size", "learning_rate", "seed", "jit")
    return {
        key: run.get(key) for key in (*keys, "train_images", "train_sha256", "seconds", "result")
    }


def _load_model(run: pathlib.Path) -> keras.Model:
    path = run / "model.keras"
    if not path.is_file():
        raise TfbnoodError(
            f"{path} is not there: the training is not finished; run the same `tfbnood train` again"
        )
    return load_model(path)


def _read(
    path: pathlib.Path, image_shape: tuple[int, int, int], skip_unreadable: bool
) -> tuple[list[str], np.ndarray]:
    if path.is_dir():
        found = from_folder(path, image_shape, skip_unreadable=skip_unreadable)
        return [str(file.relative_to(path)) for file in found.paths], found.images
    if path.suffix not in (".npz", ".npy"):
        raise DataError(f"images must be a folder, an .npz or an .npy file. Received: {path}")
    images = from_npz(path)
    return [f"{path.name}[{index}]" for index in range(len(images))], images
