"""Exported versions on Beam's filesystems: a local disk, `gs://`, `s3://` and so on."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from tfbnood._core.files import file_sha256
from tfbnood.beam.files import matching, open_file
from tfbnood.errors import SavedDetectorError

__all__ = ["Export", "find_export", "local_copy", "version_of"]

_GRAPH = "saved_model.pb"
_OUTPUTS = (
    "score",
    "p_value",
    "is_ood",
    "bits_per_dim",
    "valid",
)  # for older exports without a list


@dataclasses.dataclass(frozen=True)
class Export:
    """An exported version, as its `detector.json` describes it.

    Attributes:
        version: folder of the version, a path or a URL.
        image_shape: `(height, width, channels)` of the images it accepts.
        fpr: the false-alarm rate behind `is_ood`.
        calibration_images: number of in-distribution images behind its p-values.
        group_sizes: calibrated sizes of requests to `score_batch`; none without that signature.
        outputs: names of its outputs for an image.
        cluster_images: calibration images by cluster; none without clusters.

    Example:
        Export("savedmodels/mine/1", (28, 28, 1), 0.01, 5000, (1, 4, 16, 64))
    """

    version: str
    image_shape: tuple[int, int, int]
    fpr: float
    calibration_images: int
    group_sizes: tuple[int, ...] = ()
    outputs: tuple[str, ...] = _OUTPUTS
    cluster_images: tuple[int, ...] = ()


def find_export(model_base: str | os.PathLike[str]) -> Export:
    """The newest version of a model base, or a version given by its own folder.

    Args:
        model_base: folder with numbered versions, such as `savedmodels/mine`, or one of them, `savedmodels/mine/1`; a
            path or a URL.

    Raises:
        SavedDetectorError: if there is no exported version.

    Example:
        find_export(base).image_shape
    """
    version = version_of(model_base)
    try:
        about = _read_json(f"{version}/assets.extra/detector.json")
        height, width, channels = (int(side) for side in about["image_shape"])
        return Export(
            version,
            (height, width, channels),
            float(about["fpr"]),
            int(about["calibration_images"]),
            tuple(about["batch_group_sizes"] or ()),
            tuple(about.get("outputs", _OUTPUTS)),
            tuple(about.get("clusters", {}).get("calibration_images", ())),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_exported(version, error) from error


def version_of(path: str | os.PathLike[str]) -> str:
    """The folder of a version, given that folder, its graph `saved_model.pb`, or a model base, whose newest it is."""
    folder = os.fspath(path).rstrip("/")
    folder = folder.removesuffix(f"/{_GRAPH}")
    if matching(f"{folder}/{_GRAPH}"):
        return folder
    versions = [one.path.removesuffix(f"/{_GRAPH}") for one in matching(f"{folder}/*/{_GRAPH}")]
    numbered = {int(name): one for one in versions if (name := one.rpartition("/")[2]).isdecimal()}
    if not numbered:
        raise SavedDetectorError(
            "model_base must be a folder with exported versions, or one of them; Detector.export and `tfbnood export` "
            f"write them. Received: {folder}, which has none"
        )
    return numbered[max(numbered)]


@contextlib.contextmanager
def local_copy(version: str) -> Iterator[pathlib.Path]:
    """Yields the version as a local folder; one behind a URL is copied for the block, and checked."""
    if "://" not in version:
        yield pathlib.Path(version)
        return
    with tempfile.TemporaryDirectory(prefix="tfbnood-") as folder:
        for file in matching(f"{version}/**"):
            name = file.path.removeprefix(version).lstrip("/")
            if ".." in name.split("/"):  # Objects in a bucket may have any name.
                raise SavedDetectorError(
                    f"{version} must not have files outside its folder. Received: {file.path}"
                )
            target = pathlib.Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_file(file.path) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
        _check(version, pathlib.Path(folder))
        yield pathlib.Path(folder)


def _check(version: str, folder: pathlib.Path) -> None:
    """Refuses a copy that differs from the export: an upload may not have finished."""
    try:
        about = json.loads((folder / "assets.extra" / "detector.json").read_text("utf-8"))
        hashes = dict(about["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_exported(version, error) from error
    for name, expected in hashes.items():
        file = folder / name
        if not file.is_file() or file_sha256(file) != expected:
            raise SavedDetectorError(
                f"{version} must hold the files that were exported; copy it there again. "
                f"Received: {name}, which is missing or has changed"
            )


def _not_exported(version: str, error: Exception) -> SavedDetectorError:
    return SavedDetectorError(
        f"{version} must be a version that tfbnood exported. "
        f"Received: one without an intact assets.extra/detector.json ({type(error).__name__}: {error})"
    )


def _read_json(path: str) -> Any:
    with open_file(path) as file:
        return json.loads(file.read().decode("utf-8"))
