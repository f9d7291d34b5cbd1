"""Data sets by name or path, split into train, calibration and test."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tfbnood._core.cards import card, gallery
from tfbnood.data.catalogue import NAMES, Found, find
from tfbnood.data.file_summary import FileSummary, sentences
from tfbnood.data.formats import Part, checked_image_shape
from tfbnood.data.own import find_own, own_path
from tfbnood.errors import DataError

__all__ = ["Dataset", "describe", "load"]

_SPLIT_SEED = 0
_CALIBRATION_SHARE = 10  # one image in ten
_MAX_CALIBRATION = 5000
_SHOWN = 12  # images in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set in three disjoint parts: train, calibration (held out from train) and test.

    Attributes:
        name: as passed to `load`.
        source: where the images came from, in a few words.
        splits: images by split, each uint8 `[n, height, width, channels]`.
        labels: int64 labels `[n]` by split, for the splits that have them.
        missing: by the name of a missing split, the error message on access.
        files: for a folder, the conversions in the files of train and calibration.

    Example:
        >>> images = np.zeros((10, 8, 8, 1), np.uint8)
        >>> Dataset("mine", "made here", {"train": images[:6], "calibration": images[6:8], "test": images[8:]})
        <Dataset mine: 6 train, 2 calibration, 2 test, image_shape=(8, 8, 1), made here>
    """

    name: str
    source: str
    splits: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    files: FileSummary | None = None

    @property
    def train(self) -> np.ndarray:
        """Images to fit the model to."""
        return self._split("train")

    @property
    def calibration(self) -> np.ndarray:
        """Images held out from train, to calibrate a detector on."""
        return self._split("calibration")

    @property
    def test(self) -> np.ndarray:
        """Images that neither the model nor the calibration has seen."""
        return self._split("test")

    @property
    def train_labels(self) -> np.ndarray | None:
        """Labels of `train`, or None when the source has none."""
        return self._split_labels("train")

    @property
    def calibration_labels(self) -> np.ndarray | None:
        """Labels of `calibration`, or None when the source has none."""
        return self._split_labels("calibration")

    @property
    def test_labels(self) -> np.ndarray | None:
        """Labels of `test`, or None when the source has none."""
        return self._split_labels("test")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """`(height, width, channels)` of every image."""
        height, width, channels = next(iter(self.splits.values())).shape[1:]
        return height, width, channels

    def _split(self, split: str) -> np.ndarray:
        if split not in self.splits:
            reason = self.missing.get(split, f"{self.name} has no {split} images")
            raise DataError(f"{reason}. Received: splits {list(self.splits)} from {self.source}")
        return self.splits[split]

    def _split_labels(self, split: str) -> np.ndarray | None:
        self._split(split)
        return self.labels.get(split)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(images)} {split}" for split, images in self.splits.items())
        return f"<Dataset {self.name}: {counts}, image_shape={self.image_shape}, {self.source}>"

    def _repr_html_(self) -> str:
        height, width, channels = self.image_shape
        facts = {
            split: f"{len(images):,} image{'' if len(images) == 1 else 's'}"
            for split, images in self.splits.items()
        }
        facts |= {
            "images": f"{height}×{width} pixels, {'grey' if channels == 1 else 'colour'}",
            "labels": ", ".join(self.labels),
            "from": self.source,
            "files": "" if self.files is None else " ".join(sentences(self.files)),
        }
        images = next(iter(self.splits.values()))
        # Spread over the set: the first images of a file may be of one class.
        rows = np.linspace(0, len(images) - 1, min(len(images), _SHOWN)).astype(int)
        return card(f"Data set {self.name}", facts) + gallery(
            images[rows], [str(row) for row in rows], [False] * len(rows)
        )


def load(
    name: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    image_shape: tuple[int, int, int] | None = None,
    skip_unreadable: bool = False,
) -> Dataset:
    """Loads a data set by name, or a folder of images or an npz file by its path.

    The first source that has the name is used: `NAME_train.npz` and `NAME_test.npz`, or else
    `NAME.npz`, in the folder (uint8 `images`, optionally integer `labels`); then what the system
    has (Debian's dataset-fashion-mnist, scikit-learn's digits); then tensorflow-datasets, which
    downloads. Any name works that the folder has files for.

    A test set of the source is kept whole and in its order. A source without one is shuffled with a fixed
    seed, and half of it is test. Calibration is a fixed random tenth of the training images, at
    most 5,000; of the 1,797 digits, 397 are test and 300 calibration.

    A path has a separator (`./mnist`), begins with a dot or `~`, or ends in .npz. A plain word that no source knows
    is also a path if there is such a folder. Of its n images, n/10 are test, and n/4 up to 200, or else n/10, are
    calibration; both are at most 5,000. So 600 images give 60 test, 150 calibration and 390 training images, and a
    false-alarm rate of 0.01 needs at least 396 images.

    Subfolders train/ and test/ become the splits; everything beside them is ignored. Calibration is then held out
    from train/ by the same rule, and test/ should hold no outliers. The names of other subfolders have no meaning.
    Files are split in the order of a hash of their names, so that nearly all stay in their split when others are
    added.

    Args:
        name: one of `NAMES`, the stem of npz files in the folder, or a path.
        data_dir: a folder of npz files. Defaults to the folder in the environment variable `TFBNOOD_DATA`, if set.
        image_shape: `(height, width, channels)` to fit the files of a folder to, as in `from_folder`.
            Defaults to what `tfbnood.data.survey.survey` suggests. Arrays must have this shape already.
        skip_unreadable: as for `from_folder`.

    Returns:
        A `Dataset`. Accessing a split that the source lacks raises a `DataError`.

    Raises:
        DataError: says, in order, what was looked for and how to get it.

    Example:
        >>> digits = load("digits")
        >>> digits.train.shape, digits.calibration.shape, digits.test.shape
        ((1100, 8, 8, 1), (300, 8, 8, 1), (397, 8, 8, 1))
    """
    shape = None if image_shape is None else checked_image_shape(image_shape)
    if (path := own_path(name, data_dir)) is not None:
        found = find_own(path, shape, skip_unreadable=skip_unreadable)
    else:
        found = find(cast("str", name), data_dir)
    dataset = _make_dataset(str(name), found)
    if shape not in (None, dataset.image_shape):
        raise DataError(
            f"image_shape must be {dataset.image_shape}, the shape of the images in {dataset.source}. "
            f"Received: image_shape={shape}"
        )
    return dataset


def _make_dataset(name: str, found: Found) -> Dataset:
    parts = _cut(found, name)
    return Dataset(
        name=name,
        source=found.source,
        splits={split: part.images for split, part in parts.items()},
        labels={split: part.labels for split, part in parts.items() if part.labels is not None},
        missing=found.missing,
        files=found.files,
    )


def describe(
    names: Sequence[str] = (),
    *,
    data_dir: str | os.PathLike[str] | None = None,
    as_json: bool = False,
) -> str:
    """Describes each data set: its source and number of images on this machine, or how to get it.

    Args:
        names: Defaults to all of `NAMES`, including those that have to be downloaded.
        data_dir: as for `load`.
        as_json: return JSON instead of text.

    Example:
        >>> describe(["digits"]).split(";")[0]
        'digits         8×8×1    1100 train, 300 calibration, 397 test'
    """
    rows: list[dict[str, object]] = []
    for name in names or NAMES:
        try:
            dataset = load(name, data_dir=data_dir)
        except DataError as error:
            rows.append({"name": name, "error": str(error)})
        else:
            counts = {split: len(images) for split, images in dataset.splits.items()}
            shape = list(dataset.image_shape)
            rows.append({"name": name, "shape": shape, **counts, "source": dataset.source})
    if as_json:
        return json.dumps(rows, indent=2)
    return "\n".join(_describe_dataset(row) for row in rows)


def _describe_dataset(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['name']:14} not available: {row['error']}"
    shape = "×".join(map(str, row["shape"]))
    counts = ", ".join(
        f"{row[key]} {key}" for key in ("train", "calibration", "test") if key in row
    )
    return f"{row['name']:14} {shape:8} {counts}; {row['source']}"


def _cut(found: Found, name: str) -> dict[str, Part]:
    """Cuts the images into disjoint splits, which are the same on every machine and will stay the same."""
    # RandomState and not default_rng: NumPy's policy freezes only the stream of the former. If it changed, images that
    # a saved model was trained on would appear in its calibration set.
    random = np.random.RandomState(_SPLIT_SEED)
    parts: dict[str, Part] = {}
    train, test = found.train, found.test
    rows = found.order
    if found.whole is not None:
        train, n = found.whole, len(found.whole.images)
        rows = random.permutation(n) if rows is None else rows
        size = n // 2 if found.test_size is None else found.test_size
        test, rows = train.take(rows[:size]), rows[size:]
    if train is not None:
        rows = np.arange(len(train.images)) if rows is None else rows
        if len(rows) < 2 or (test is not None and len(test.images) == 0):
            raise DataError(
                f"{name} must have at least two training images, of which one is held out, and one "
                f"test image. Received: {found.source} with too few images"
            )
        if found.order is None:
            rows = rows[random.permutation(len(rows))]
        share = max(1, min(len(rows) // _CALIBRATION_SHARE, _MAX_CALIBRATION))
        size = share if found.calibration_size is None else found.calibration_size
        parts = {"train": train.take(rows[size:]), "calibration": train.take(rows[:size])}
    if test is not None:
        parts["test"] = test
    return parts
