"""A detector as a folder: `model.keras`, `arrays.npz` and `detector.json`, which has a hash of the others."""

import hashlib
import json
import os
import pathlib
import shutil
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tfbnood import statistics
from tfbnood._core.files import write_json
from tfbnood._core.provenance import versions
from tfbnood.calibration.conformal import Calibration
from tfbnood.errors import DataError, SavedDetectorError
from tfbnood.models.registry import MODELS, model_class

if TYPE_CHECKING:
    from tfbnood.detector import Detector

__all__ = ["FORMAT", "load", "load_model", "save"]

FORMAT = 1


def save(detector: "Detector", folder: str | os.PathLike) -> None:
    """Writes the folder beside its place and renames it there; an older detector there is replaced."""
    folder = pathlib.Path(folder)
    if folder.exists() and not (folder / "detector.json").is_file():
        raise DataError(f"folder must be new, or hold a detector to replace. Received: {folder}")
    temporary = folder.with_name(f".partial-{os.getpid()}-{folder.name}")
    temporary.mkdir(parents=True)
    try:
        _write(detector, temporary)
        _replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def load(cls: type["Detector"], folder: str | os.PathLike) -> "Detector":
    """Reads a folder that `save` wrote, after checking that it is whole and unchanged."""
    folder = pathlib.Path(folder)
    description = _description(folder)
    for name, digest in description["sha256"].items():
        _check_file(folder / name, digest)
    models = [load_model(folder / name) for name in description["models"]]
    with np.load(folder / "arrays.npz", allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    statistic = statistics.get(description["statistic"], **description["config"])
    model = models if description["several_models"] else (models[0] if models else None)
    statistic.set_state(model, _with_prefix(arrays, "statistic/"))
    detector = cls.__new__(cls)
    detector.model = model
    detector.statistic = statistic
    detector.reference = None
    detector.about = description.get("about", {})
    detector.calibration = None
    if description["calibrated"]:
        detector.calibration = Calibration(
            *(
                {int(size): scores for size, scores in _with_prefix(arrays, prefix).items()}
                for prefix in ("image_scores/", "batch_scores/")
            )
        )
    return detector


def _write(detector: "Detector", folder: pathlib.Path) -> None:
    several = isinstance(detector.model, list | tuple)
    models = (
        list(detector.model) if several else [detector.model] if detector.model is not None else []
    )
    names = [f"model_{index}.keras" for index in range(len(models))] if several else ["model.keras"]
    names = names[: len(models)]
    for name, model in zip(names, models, strict=True):
        model.save(folder / name)
    arrays = {f"statistic/{key}": value for key, value in detector.statistic.get_state().items()}
    if detector.calibration is not None:
        for kind in ("image_scores", "batch_scores"):
            for size, scores in getattr(detector.calibration, kind).items():
                arrays[f"{kind}/{size}"] = scores
    np.savez_compressed(folder / "arrays.npz", allow_pickle=False, **arrays)
    write_json(
        folder / "detector.json",
        {
            "format": FORMAT,
            "statistic": detector.statistic.name,
            "config": detector.statistic.get_config(),
            "image_shape": list(detector.image_shape),
            "calibrated": detector.calibration is not None,
            "about": detector.about,
            "several_models": several,
            "models": names,
            "versions": versions(),
            "sha256": {name: _sha256(folder / name) for name in (*names, "arrays.npz")},
        },
    )


def _replace(temporary: pathlib.Path, folder: pathlib.Path) -> None:
    old = folder.with_name(f".old-{os.getpid()}-{folder.name}")
    if folder.exists():
        folder.rename(old)  # a folder cannot be renamed onto one that is not empty
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _description(folder: pathlib.Path) -> dict[str, Any]:
    path = folder / "detector.json"
    if not path.is_file():
        raise SavedDetectorError(
            f"folder must hold a saved detector, with detector.json. Received: {folder}"
        )
    try:
        description = json.loads(path.read_text())
        newest = description["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise SavedDetectorError(f"{path} is damaged: {type(error).__name__}: {error}") from None
    if newest != FORMAT:
        raise SavedDetectorError(
            f"{path} has format {newest}, this version of tfbnood reads format {FORMAT}: "
            f"it was written by tfbnood {description.get('versions', {}).get('tfbnood', 'unknown')}"
        )
    wanted = {"statistic", "config", "calibrated", "several_models", "models", "sha256"}
    if missing := wanted - description.keys():
        raise SavedDetectorError(f"{path} is damaged: it lacks {', '.join(sorted(missing))}")
    for name in (*description["models"], *description["sha256"]):
        # Names come from a file: none may lead out of the folder.
        if pathlib.PurePath(name).name != name or name.startswith("."):
            raise SavedDetectorError(f"{path} names a file outside its folder: {name!r}")
    unhashed = {*description["models"], "arrays.npz"} - description["sha256"].keys()
    if unhashed:
        raise SavedDetectorError(f"{path} is damaged: no hash for {', '.join(sorted(unhashed))}")
    return description


def _check_file(path: pathlib.Path, digest: str) -> None:
    if not path.is_file():
        raise SavedDetectorError(f"{path} is missing: the saved detector is not whole")
    if _sha256(path) != digest:
        raise SavedDetectorError(
            f"{path} was truncated or edited: its hash is not that in detector.json"
        )


def load_model(path: pathlib.Path) -> keras.Model:
    """Loads a `.keras` file, of one of our models or of a registered one."""
    for name in MODELS:  # Importing a class registers it with Keras.
        model_class(name)
    try:
        return keras.models.load_model(path)
    except (TypeError, ValueError) as error:
        raise SavedDetectorError(
            f"{path} cannot be loaded; a model of your own must be imported and registered with "
            f"keras.saving.register_keras_serializable first ({str(error).splitlines()[0][:200]})"
        ) from error


def _with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }


def _sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
