"""Checks that run before a command starts, and before TensorFlow is imported."""

import os
import pathlib
import tempfile
from collections.abc import Iterable, Sequence

from tfbnood._core import shipped
from tfbnood._core.files import version_folders
from tfbnood.cli.values import did_you_mean
from tfbnood.errors import TfbnoodError

__all__ = ["check_data_sets", "check_out", "detector_folder", "find_detector", "is_writable"]


def detector_folder(text: str, name: str = "DETECTOR") -> pathlib.Path:
    """The folder of a detector, given by its path or by the name of a shipped one."""
    path = pathlib.Path(text)
    if (path / "detector.json").is_file():
        return path
    names = shipped.names()
    if text in names:
        return shipped.base(text) / "detector"
    if (path / "detector" / "detector.json").is_file():
        return path / "detector"  # A model base, as under savedmodels/.
    hint = did_you_mean(text, names) or ", which does not exist"
    if path.exists():
        hint = ", which has no detector.json"
    raise TfbnoodError(
        f"{name} must be the folder of a saved detector, as written by `tfbnood fit`, or one of "
        f"{', '.join(names)}. Received: {text}{hint}"
    )


def find_detector(text: str) -> tuple[pathlib.Path | None, pathlib.Path | None]:
    """The folder of a detector; failing that, the newest exported version of a model base."""
    path = pathlib.Path(text)
    is_detector = any((path / part / "detector.json").is_file() for part in ("", "detector"))
    if not is_detector and path.is_dir():
        if (path / "saved_model.pb").is_file():
            return None, path
        if versions := version_folders(path):
            return None, versions[max(versions)]
    return detector_folder(text, "WHAT"), None


def check_data_sets(
    option: str, names: Iterable[str], data_dir: str | None, also: Sequence[str] = ()
) -> None:
    """Refuses a name that is not a known data set, not a file in the data folder, and not a path.

    Args:
        option: the option the names belong to, for the error.
        names: of data sets.
        data_dir: as typed after --data-dir.
        also: further names that are accepted.
    """
    from tfbnood.data.catalogue import DATA_DIR_VARIABLE, NAMES
    from tfbnood.data.folders import walk
    from tfbnood.data.own import own_path

    place = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    if place and not pathlib.Path(place).is_dir():
        source = "--data-dir" if data_dir else DATA_DIR_VARIABLE
        raise TfbnoodError(f"{source} must name an existing folder. Received: {place}")
    files = [path.stem for path in pathlib.Path(place).glob("*.npz")] if place else []
    stems = {stem.removesuffix("_train").removesuffix("_test") for stem in files}
    known = [*NAMES, *also, *sorted(stems - {*NAMES})]
    where = place or "the folder that --data-dir names"
    for name in names:
        if (path := own_path(name, data_dir)) is not None:
            if not path.exists():
                raise TfbnoodError(
                    f"{option} must be the name of a data set, a folder of images or an .npz file. "
                    f"Received: {name}, which does not exist"
                )
            if path.is_dir() and next(walk(path, at_a_time=1), None) is None:
                raise TfbnoodError(
                    f"{option} must be a folder with images in it or below it. Received: {name}, which has none"
                )
        elif name not in known:
            raise TfbnoodError(
                f"{option} must be one of {', '.join((*NAMES, *also))}, a folder of images, or have npz files in "
                f"{where}. Received: {name}{did_you_mean(name, known)}"
            )


def check_out(text: str) -> None:
    """Refuses a folder that cannot be created, before hours of work depend on it."""
    path = pathlib.Path(text)
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        which = f"{text}, which is a file" if there == path else f"{text}: {there} is a file"
        raise TfbnoodError(f"--out must be a folder. Received: {which}")
    if not is_writable(there):
        raise TfbnoodError(f"--out must be a writable folder. Received: {text}")


def is_writable(folder: pathlib.Path) -> bool:
    """Whether a file can be created in a folder. Tries it: for root, `os.access` always answers yes."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
