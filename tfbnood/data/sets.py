"""Data sets by name, cut into train, calibration and test."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfbnood.data.catalogue import NAMES, Found, find
from tfbnood.data.formats import Part
from tfbnood.errors import DataError

__all__ = ["Dataset", "describe", "load"]

_SPLIT_SEED = 0
_CALIBRATION_SHARE = 10  # one image in so many
_MAX_CALIBRATION = 5000


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set in three disjoint parts: train, calibration (held out from train) and test.

    Attributes:
        name: what `load` was asked for.
        source: where the images came from, in a few words.
        splits: images by split, each uint8 `[n, height, width, channels]`.
        labels: int64 labels `[n]` by split, for the splits that have them.
        missing: by the name of a split that is not there, the sentence to say when it is asked for.

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


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Loads a data set by name.

    The first source that has the name is used: `NAME_train.npz` and `NAME_test.npz`, or else
    `NAME.npz`, in the folder (uint8 `images`, optionally integer `labels`); then what the system
    has (Debian's dataset-fashion-mnist, scikit-learn's digits); then tensorflow-datasets, which
    downloads. Any name works that the folder has files for.

    A source with a test set keeps it whole and in its order. One without is shuffled by a fixed
    seed, and half of it is test. Calibration is a fixed random tenth of the training images, at
    most 5,000; of the 1,797 digits, 397 are test and 300 calibration.

    Args:
        name: one of `NAMES`, or the stem of npz files in the folder.
        data_dir: a folder of npz files. Defaults to the one that the environment variable
            `TFBNOOD_DATA` names, if any.

    Returns:
        A `Dataset`. A split that the source lacks raises a `DataError` when it is asked for.

    Raises:
        DataError: says, in order, what was looked for and how to get it.

    Example:
        >>> digits = load("digits")
        >>> digits.train.shape, digits.calibration.shape, digits.test.shape
        ((1100, 8, 8, 1), (300, 8, 8, 1), (397, 8, 8, 1))
    """
    found = find(name, data_dir)
    parts = _cut(found, name)
    return Dataset(
        name=name,
        source=found.source,
        splits={split: part.images for split, part in parts.items()},
        labels={split: part.labels for split, part in parts.items() if part.labels is not None},
        missing=found.missing,
    )


def describe(
    names: Sequence[str] = (),
    *,
    data_dir: str | os.PathLike[str] | None = None,
    as_json: bool = False,
) -> str:
    """Says of each data set where this machine has it from and how many images, or how to get it.

    Args:
        names: Defaults to all of `NAMES`. Those that only a download would bring are tried as well.
        data_dir: as for `load`.
        as_json: give JSON instead of text.

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
    return "\n".join(_description(row) for row in rows)


def _description(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['name']:14} not here: {row['error']}"
    shape = "×".join(map(str, row["shape"]))
    counts = ", ".join(
        f"{row[key]} {key}" for key in ("train", "calibration", "test") if key in row
    )
    return f"{row['name']:14} {shape:8} {counts}; {row['source']}"


def _cut(found: Found, name: str) -> dict[str, Part]:
    """Cuts what was found into disjoint splits, the same ones on every machine and in any year."""
    # RandomState and not default_rng: NumPy's policy freezes only the stream of the former. Were it
    # to change, images that a saved model was trained on would turn up in its calibration set.
    random = np.random.RandomState(_SPLIT_SEED)
    parts = {}
    train, test = found.train, found.test
    if found.whole is not None:
        order = random.permutation(len(found.whole.images))
        size = len(order) // 2 if found.test_size is None else found.test_size
        train, test = found.whole.take(order[size:]), found.whole.take(order[:size])
    if train is not None:
        if len(train.images) < 2 or (test is not None and len(test.images) == 0):
            raise DataError(
                f"{name} must have at least two training images, of which one is held out, and one "
                f"test image. Received: {found.source} with too few images"
            )
        order = random.permutation(len(train.images))
        share = max(1, min(len(order) // _CALIBRATION_SHARE, _MAX_CALIBRATION))
        size = share if found.calibration_size is None else found.calibration_size
        parts = {"train": train.take(order[size:]), "calibration": train.take(order[:size])}
    if test is not None:
        parts["test"] = test
    return parts
