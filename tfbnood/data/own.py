"""A user's own data set: a folder of images or an npz file, given by its path."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from tfbnood.data.catalogue import NAMES, Found, has_npz
from tfbnood.data.folders import FolderImages, from_folder, walk
from tfbnood.data.formats import Part, read_part
from tfbnood.data.survey import survey
from tfbnood.errors import DataError

__all__ = ["find_own", "own_path", "share_for_calibration", "share_for_test"]

_MOST = 5000  # images for test or calibration: more improve neither
_ENOUGH = 200  # images for calibration, if a quarter of them is as many: p-values down to 0.005


def own_path(name: Any, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The path that `tfbnood.data.load` was given, or None if it was the name of a data set.

    Example:
        >>> own_path("mnist"), own_path("./mnist"), own_path("mine.npz")
        (None, PosixPath('mnist'), PosixPath('mine.npz'))
    """
    if isinstance(name, os.PathLike):
        return Path(name)
    if not isinstance(name, str):
        return None
    separated = os.sep in name or (os.altsep is not None and os.altsep in name)
    if separated or name.startswith((".", "~")) or name.endswith(".npz"):
        return Path(os.path.expanduser(name))
    if not name or name in NAMES or not Path(name).is_dir() or has_npz(name, data_dir):
        return None
    return Path(name)


def find_own(
    path: Path, image_shape: tuple[int, int, int] | None = None, *, skip_unreadable: bool = False
) -> Found:
    """Reads a folder of images or an npz file, with splits of the sizes that `tfbnood.data.load` states.

    Args:
        path: of the folder or the file.
        image_shape: to fit the files of a folder to. Defaults to what `survey` suggests.
        skip_unreadable: as for `from_folder`.

    Raises:
        DataError: if there is no such folder or file.

    Example:
        >>> np.savez(folder / "mine.npz", images=x.test)
        >>> find_own(folder / "mine.npz").calibration_size
        99
    """
    if path.is_dir():
        return _read_folder(path, image_shape, skip_unreadable)
    if path.suffix != ".npz" or not path.is_file():
        missing = "" if path.exists() else ", which does not exist"
        raise DataError(
            "name must be the name of a data set, or the path of a folder of images or of an npz file. "
            f"Received: name={str(path)!r}{missing}"
        )
    whole = read_part(path)
    n = len(whole.images)
    return Found(
        str(path),
        whole=whole,
        test_size=share_for_test(n),
        calibration_size=share_for_calibration(n),
    )


def share_for_test(n: int) -> int:
    """The number of test images among n: a tenth, at least 1 and at most 5,000.

    Example:
        >>> [share_for_test(n) for n in (3, 600, 100_000)]
        [1, 60, 5000]
    """
    return min(max(1, n // 10), _MOST)


def share_for_calibration(n: int) -> int:
    """The number of calibration images among n: a quarter up to 200, or a tenth if that is more, 1 to 5,000.

    The false-alarm rate 0.01 needs at least 99, which 396 images give.

    Example:
        >>> [share_for_calibration(n) for n in (3, 396, 600, 2000, 10_000, 100_000)]
        [1, 99, 150, 200, 1000, 5000]
    """
    return min(max(1, n // 10, min(n // 4, _ENOUGH)), _MOST)


def _read_folder(
    folder: Path, image_shape: tuple[int, int, int] | None, skip_unreadable: bool
) -> Found:
    splits = {
        split: folder / split
        for split in ("train", "test")
        if (folder / split).is_dir() and next(walk(folder / split, at_a_time=1), None) is not None
    }
    # One survey for all splits: they must get one shape.
    shape = image_shape or survey(splits.get("train", splits.get("test", folder))).image_shape
    if not splits:
        found = from_folder(folder, shape, skip_unreadable=skip_unreadable)
        n = len(found.images)
        return Found(
            str(folder),
            whole=Part(found.images),
            test_size=share_for_test(n),
            calibration_size=share_for_calibration(n),
            order=_order_by_hash(found, folder),
            files=found.summary,
        )
    read = {
        split: from_folder(place, shape, skip_unreadable=skip_unreadable)
        for split, place in splits.items()
    }
    train, test = read.get("train"), read.get("test")
    return Found(
        ", ".join(map(str, splits.values())),
        train=None if train is None else Part(train.images),
        test=None if test is None else Part(test.images),
        calibration_size=None if train is None else share_for_calibration(len(train.images)),
        order=None if train is None else _order_by_hash(train, splits["train"]),
        files=None if train is None else train.summary,
        missing={
            split: f"{folder} has no {split} images: found none below {folder / place}"
            for split, place in (("train", "train"), ("calibration", "train"), ("test", "test"))
        },
    )


def _order_by_hash(found: FolderImages, folder: Path) -> np.ndarray:
    """A random order that is the same on every machine and hardly changes when files are added."""
    names = [path.relative_to(folder).as_posix() for path in found.paths]
    hashes = [hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest() for name in names]
    return np.array(sorted(range(len(names)), key=hashes.__getitem__))
