"""A monitor as a folder: `monitor.json`, which holds the hash of `arrays.npz`; written atomically."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfbnood._core.files import (
    atomic_folder,
    file_sha256,
    list_names,
    read_whole,
    restore_folder,
    writing,
)
from tfbnood.errors import DataError, TfbnoodError

__all__ = ["FORMAT", "read", "write"]

FORMAT = 1
_DESCRIPTION, _ARRAYS = "monitor.json", "arrays.npz"


def write(
    folder: str | os.PathLike, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes the folder beside its place and renames it, replacing an older monitor.

    Raises:
        DataError: if the folder holds anything but a monitor, or a key is not JSON-safe.
        TfbnoodError: if it cannot be written; an older monitor stays as it was.

    Example:
        >>> write(folder / "monitor", {"count": 3}, {"p": np.zeros(2)})
        >>> sorted(path.name for path in (folder / "monitor").iterdir())
        ['arrays.npz', 'monitor.json']
    """
    folder = pathlib.Path(folder)
    with writing(folder):
        restore_folder(folder)
        _check_place(folder)
    try:
        json.dumps(content)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"keys must be JSON-safe, such as names or numbers. Received: {error}"
        ) from None
    with atomic_folder(folder) as temporary:
        np.savez(temporary / _ARRAYS, allow_pickle=False, **dict(arrays))
        described = {"format": FORMAT, **content, "sha256": file_sha256(temporary / _ARRAYS)}
        (temporary / _DESCRIPTION).write_text(json.dumps(described) + "\n", "utf-8")


def read(folder: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads what `write` wrote, even after a kill in the middle of it.

    Raises:
        DataError: if there is no monitor, or it is damaged or has another format.

    Example:
        >>> write(folder / "monitor", {"count": 3}, {"p": np.zeros(2)})
        >>> content, arrays = read(folder / "monitor")
        >>> content["count"], arrays["p"]
        (3, array([0., 0.]))
    """
    folder = pathlib.Path(folder)
    return read_whole(folder, lambda: _read(folder))


def _read(folder: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    restore_folder(folder)
    path = folder / _DESCRIPTION
    if not path.is_file():
        raise DataError(
            f"folder must hold a saved monitor, with {_DESCRIPTION}. Received: {folder}"
        )
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            raise DataError(
                f"{path} must have format {FORMAT}: another version of tfbnood wrote it. "
                f"Received: {str(content['format'])[:20]}"
            )
        if file_sha256(folder / _ARRAYS) != content["sha256"]:
            raise ValueError(f"the hash of {_ARRAYS} does not match {_DESCRIPTION}")
        with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
            return content, {name: arrays[name] for name in arrays.files}
    except TfbnoodError:
        raise
    except Exception as error:  # JSON, zip and NumPy raise many kinds.
        raise _make_error(folder, error) from None


def _make_error(folder: pathlib.Path, error: Exception) -> DataError:
    reason = (str(error).splitlines() or [""])[0][:200]
    return DataError(f"{folder} cannot be loaded: it is damaged ({type(error).__name__}: {reason})")


def _check_place(folder: pathlib.Path) -> None:
    names = {folder.name} if folder.is_file() else list_names(folder)
    if names is not None and not names <= {_DESCRIPTION, _ARRAYS}:
        raise DataError(
            f"folder must be new, or hold a monitor to replace and nothing else. Received: {folder}"
        )
