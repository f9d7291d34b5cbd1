"""A detector as a folder: `model.keras`, `arrays.npz` and `detector.json`, which holds the hashes of all three.

Nothing in such a folder is trusted: hashes, names, types and sizes are checked before anything is unpacked, and
any fault raises a `SavedDetectorError`.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

import tfbnood.models
import tfbnood.networks.network  # noqa: F401 (both register our classes with Keras)
from tfbnood import statistics
from tfbnood._core.files import (
    atomic_folder,
    file_sha256,
    list_names,
    read_whole,
    restore_folder,
    writing,
)
from tfbnood._core.provenance import versions
from tfbnood.calibration.clusters import Clusters
from tfbnood.calibration.conformal import Calibration
from tfbnood.calibration.mondrian import Mondrian
from tfbnood.data.changes import check_changes
from tfbnood.errors import DataError, SavedDetectorError, TfbnoodError
from tfbnood.statistics.base import Statistic

__all__ = ["FORMAT", "Parts", "load", "load_model", "save"]

FORMAT = 3
"""Both earlier formats are still read: 2 has half precision where 3 has bytes; 1, of version 0.1.0, also lacks a hash
of `detector.json` itself."""

_DESCRIPTION, _ARRAYS, _OWN_HASH = "detector.json", "arrays.npz", "content_sha256"
_MOST_BYTES = 2 * 2**30  # unpacked; more only for a file that is itself as large
_MOST_JSON_BYTES = 2**24
# By statistic, settings that files of version 0.1.0 may lack, with the behaviour of that version.
_OLDER: dict[str, dict[str, Any]] = {"ensemble": {"pretext": False}}
_CLUSTERS = ("mean", "axes", "centres")
_TYPES = {
    "statistic": str,
    "config": dict,
    "image_shape": list,
    "calibrated": bool,
    "several_models": bool,
    "models": list,
    "sha256": dict,
    "about": dict,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a detector.

    Attributes:
        model: a Keras model, a list of them, or None.
        statistic: fitted.
        calibration: None before `calibrate`.
        tolerate: names of changes that raise no more alarms than the rate allows.
        about: where it comes from, as JSON-safe values.
    """

    model: Any
    statistic: Statistic
    calibration: Calibration | None
    tolerate: tuple[str, ...]
    about: dict[str, Any]


def save(
    folder: str | os.PathLike,
    *,
    model: Any,
    statistic: Statistic,
    calibration: Calibration | None,
    tolerate: tuple[str, ...] = (),
    about: Mapping[str, Any],
) -> None:
    """Writes the folder beside its place and renames it, replacing an older detector.

    Raises:
        DataError: if the folder holds anything but a detector, or `about` is not JSON-safe.
        TfbnoodError: if it cannot be written; an older detector stays as it was.
    """
    folder = pathlib.Path(folder)
    with writing(folder):
        restore_folder(folder)
        _check_place(folder)
    parts = Parts(model, statistic, calibration, tolerate, dict(about))
    with atomic_folder(folder) as temporary:
        _write(parts, temporary)


def load(folder: str | os.PathLike) -> Parts:
    """Reads a folder that `save` wrote, after checking that it is complete and unchanged.

    Raises:
        SavedDetectorError: if it is not, or if your own model or statistic is not registered.
    """
    folder = pathlib.Path(folder)
    return read_whole(folder, lambda: _load(folder))


def _load(folder: pathlib.Path) -> Parts:
    with _refuse_errors(folder):
        restore_folder(folder)
        description = _read_description(folder / _DESCRIPTION)
        for name, digest in description["sha256"].items():
            _check_file(folder / name, digest)
    arrays = _read_arrays(folder / _ARRAYS)
    models = [load_model(folder / name) for name in description["models"]]
    model = models if description["several_models"] else (models[0] if models else None)
    with _refuse_errors(folder / _ARRAYS):
        calibration = None
        if description["calibrated"]:
            calibration = _calibration(arrays, description.get("clusters"))
        state = _take(arrays, "statistic/")
        if arrays:
            raise ValueError(f"unknown array {min(arrays)[:80]!r}")
    with _refuse_errors(folder):
        tolerate = check_changes(description.get("tolerate", ()))
    with _refuse_errors(folder, "its statistic cannot be restored"):
        name = description["statistic"]
        statistic = statistics.get(name, **{**_OLDER.get(name, {}), **description["config"]})
        statistic.set_state(model, state)
        if list(statistic.image_shape_) != description["image_shape"]:
            raise ValueError(
                f"image_shape_ is {statistic.image_shape_}, not that of {_DESCRIPTION}"
            )
    return Parts(model, statistic, calibration, tolerate, description["about"])


def load_model(path: str | os.PathLike) -> keras.Model:
    """Loads a `.keras` file of one of our models or of a registered one."""
    try:
        _check_unpacked_size(pathlib.Path(path))
        return keras.models.load_model(path)
    except SavedDetectorError:
        raise
    except Exception as error:  # Keras raises many kinds for a damaged archive.
        raise SavedDetectorError(
            f"{path} cannot be loaded; import your own model and register it with "
            f"keras.saving.register_keras_serializable first ({_one_line(error)})"
        ) from error


def _check_place(folder: pathlib.Path) -> None:
    names = set() if folder.is_file() else list_names(folder)
    if names is None:
        return
    others = {name for name in names if not re.fullmatch(r"model(_\d+)?\.keras", name)}
    # The report is a page about the detector, which is generated again.
    others -= {_DESCRIPTION, _ARRAYS, "report.html"}
    if _DESCRIPTION not in names or others:
        seen = f", with {min(others)}" if others else ""
        raise DataError(
            f"folder must be new, or hold a detector to replace and nothing else. Received: {folder}{seen}"
        )


def _write(parts: Parts, folder: pathlib.Path) -> None:
    several = isinstance(parts.model, list | tuple)
    models = list(parts.model) if several else [] if parts.model is None else [parts.model]
    names = _model_names(several, len(models))
    for name, model in zip(names, models, strict=True):
        model.save(folder / name)
        _compress(folder / name)
    arrays = {f"statistic/{key}": value for key, value in parts.statistic.get_state().items()}
    if parts.calibration is not None:
        for kind in ("image_scores", "batch_scores"):
            for size, scores in getattr(parts.calibration, kind).items():
                arrays[f"{kind}/{size}"] = scores
    within = None if parts.calibration is None else parts.calibration.within
    if within is not None:
        arrays |= {f"clusters/{part}": getattr(within.clusters, part) for part in _CLUSTERS}
        arrays |= {f"within/{index}": scores for index, scores in enumerate(within.nulls)}
    np.savez_compressed(folder / _ARRAYS, allow_pickle=False, **arrays)
    for name in (*names, _ARRAYS):
        _check_unpacked_size(folder / name)  # Write nothing that cannot be read again.
    content = {
        "format": FORMAT,
        "statistic": parts.statistic.name,
        "config": parts.statistic.get_config(),
        "image_shape": list(parts.statistic.image_shape_),
        "calibrated": parts.calibration is not None,
        "clusters": None if within is None else within.clusters.kind,
        "tolerate": list(parts.tolerate),
        "about": parts.about,
        "several_models": several,
        "models": names,
        "versions": versions(),
        "sha256": {name: file_sha256(folder / name) for name in (*names, _ARRAYS)},
    }
    try:
        content = json.loads(json.dumps(content))  # as it will be read: keys are strings
        content[_OWN_HASH] = _content_sha256(content)
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (folder / _DESCRIPTION).write_text(f"{text}\n", "utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"about and the statistic's settings must be JSON-safe. Received: {_one_line(error)}"
        ) from None


def _compress(path: pathlib.Path) -> None:
    """Packs a `.keras` file anew: Keras does not compress it, and a fifth to a third of a small one is gaps."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def _model_names(several: bool, count: int) -> list[str]:
    return (
        [f"model_{index}.keras" for index in range(count)] if several else ["model.keras"][:count]
    )


def _content_sha256(content: Mapping[str, Any]) -> str:
    """A hash of all but the hash itself, whatever the layout of the file."""
    others = {key: value for key, value in content.items() if key != _OWN_HASH}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def _read_description(path: pathlib.Path) -> dict[str, Any]:
    if not path.is_file():
        raise SavedDetectorError(
            f"folder must hold a saved detector, with {_DESCRIPTION}. Received: {path.parent}"
        )
    with _refuse_errors(path):
        if path.stat().st_size > _MOST_JSON_BYTES:
            raise ValueError(f"larger than {_MOST_JSON_BYTES} bytes")
        description = json.loads(path.read_text("utf-8"))
        kind = description["format"]
        if type(kind) is not int or not 1 <= kind <= FORMAT:
            writer = description.get("versions", {}).get("tfbnood", "unknown")
            raise SavedDetectorError(
                f"{path} has format {str(kind)[:20]}, written by tfbnood {str(writer)[:20]}; "
                f"this version of tfbnood reads formats 1 to {FORMAT}"
            )
        if kind == 1 and _OWN_HASH not in description:
            description.setdefault("about", {})
        elif description[_OWN_HASH] != _content_sha256(description):
            raise SavedDetectorError(f"{path} was edited: its hash does not match")
        _check_description(description)
    return description


def _check_description(description: dict[str, Any]) -> None:
    for key, wanted in _TYPES.items():
        if not isinstance(description[key], wanted):
            raise ValueError(f"{key} must be of type {wanted.__name__}")
    names = _model_names(description["several_models"], len(description["models"]))
    # Names come from a file; none may lead out of the folder.
    if description["models"] != names or (description["several_models"] and not names):
        raise ValueError(f"models must be {names or ['model_0.keras']}")
    if description["sha256"].keys() != {*names, _ARRAYS}:
        raise ValueError(f"sha256 must be of {', '.join((*names, _ARRAYS))}")


def _check_file(path: pathlib.Path, digest: str) -> None:
    if not path.is_file():
        raise SavedDetectorError(f"{path} is missing: the saved detector is incomplete")
    if file_sha256(path) != digest:
        raise SavedDetectorError(
            f"{path} was truncated or edited: its hash does not match {_DESCRIPTION}"
        )


def _check_unpacked_size(path: pathlib.Path) -> None:
    """Refuses an archive that would fill the memory; no more than its stated sizes will be read."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    most = max(_MOST_BYTES, 2 * path.stat().st_size)
    if size > most:
        raise SavedDetectorError(f"{path} must unpack to at most {most} bytes. Received: {size}")


def _read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    with _refuse_errors(path):
        _check_unpacked_size(path)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            arrays = {
                one.filename.removesuffix(".npy"): _read_array(archive, one) for one in members
            }
        if len(arrays) < len(members):
            raise ValueError("a name occurs twice")
    return arrays


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Reads an array of numbers, if its header agrees with the size of its member."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read_header(file)
        size = file.tell() + math.prod(shape) * dtype.itemsize
        if dtype.kind not in "biuf" or size != member.file_size or min(shape, default=0) < 0:
            raise ValueError(
                f"{member.filename[:80]!r} has {member.file_size} bytes for {dtype} of shape {shape}"
            )
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _calibration(arrays: dict[str, np.ndarray], clusters: Any) -> Calibration:
    """Takes the calibration's scores out of the arrays, and its clusters, if any."""
    kinds = [_take(arrays, prefix) for prefix in ("image_scores/", "batch_scores/")]
    within = _take(arrays, "within/")
    for scores in (scores for kind in (*kinds, within) for scores in kind.values()):
        # Sorting rules out NaN.
        if scores.ndim != 1 or len(scores) == 0 or not (scores[:-1] <= scores[1:]).all():
            raise ValueError("calibration scores must be sorted numbers")
        if not np.isfinite(scores[[0, -1]]).all():
            raise ValueError("calibration scores must be finite")
    image_scores, batch_scores = ({int(size): kind[size] for size in kind} for kind in kinds)
    if 1 not in image_scores or min(image_scores) < 1:
        raise ValueError("calibration scores of single images are missing")
    if batch_scores and batch_scores.keys() != image_scores.keys():
        raise ValueError("calibration scores of images and of batches are of different sizes")
    if clusters is None:
        if within:
            raise ValueError("calibration scores within clusters need clusters")
        return Calibration(image_scores, batch_scores)
    found = Clusters(clusters, **_take(arrays, "clusters/"))
    if within.keys() != {str(index) for index in range(len(found))}:
        raise ValueError(f"calibration scores within {len(found)} clusters must be of each")
    nulls = tuple(within[str(index)] for index in range(len(found)))
    return Calibration(image_scores, batch_scores, Mondrian(found, nulls))


def _take(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Removes the arrays with a prefix and returns them without it."""
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays.pop(name) for name in names}


@contextlib.contextmanager
def _refuse_errors(path: pathlib.Path, what: str = "it is damaged") -> Iterator[None]:
    """Turns any error caused by a file's content into a `SavedDetectorError` of one line."""
    try:
        yield
    except SavedDetectorError:
        raise
    except Exception as error:
        raise SavedDetectorError(f"{path} cannot be loaded: {what} ({_one_line(error)})") from error


def _one_line(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0][:200]
    return text if isinstance(error, TfbnoodError) else f"{type(error).__name__}: {text}"
