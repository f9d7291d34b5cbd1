"""Sources of the named data sets: a folder of npz files, the system, then tensorflow-datasets.

`find` tries them in that order and returns the images as the source has them; `tfbnood.data` splits them into
train, calibration and test.
"""

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tfbnood._core.images import as_images
from tfbnood.data.file_summary import FileSummary
from tfbnood.data.formats import Part, first_line, fit_image, read_idx, read_part
from tfbnood.errors import DataError

__all__ = ["DATA_DIR_VARIABLE", "NAMES", "Found", "find"]

DATA_DIR_VARIABLE = "TFBNOOD_DATA"


NAMES = (
    "digits",
    "fashion_mnist",
    "mnist",
    "kmnist",
    "omniglot",
    "cifar10",
    "svhn",
    "tinyimagenet",
    "imagenet32",
    "lsun",
)


_DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


@dataclass(frozen=True, eq=False)
class Found:
    """The content of one data set, as a source has it.

    Attributes:
        source: where it came from, in a few words.
        train: the training images, before calibration images are held out.
        test: the test images.
        whole: all images, if the source does not split them; then `train` and `test` are None.
        test_size: how many of `whole` become test images. Defaults to half.
        calibration_size: how many images are held out. Defaults to the rule of `tfbnood.data`.
        order: the order of the rows of `whole` or `train` before splitting. Defaults to a shuffle with a fixed seed.
        files: what was converted in the files of `whole` or `train`, if they were files.
        missing: by the name of a missing split, one sentence on how to get it.
    """

    source: str
    train: Part | None = None
    test: Part | None = None
    whole: Part | None = None
    test_size: int | None = None
    calibration_size: int | None = None
    order: np.ndarray | None = None
    files: FileSummary | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _TfdsSet:
    """How to read one of our data sets from tensorflow-datasets."""

    tfds_name: str
    image_shape: tuple[int, int, int]
    train: str = "train"
    test: str = "test"
    invert: bool = False
    needs: str | None = None


_TFDS = {
    "fashion_mnist": _TfdsSet("fashion_mnist", (28, 28, 1)),
    "mnist": _TfdsSet("mnist", (28, 28, 1)),
    "kmnist": _TfdsSet("kmnist", (28, 28, 1)),
    # Dark ink on white; all other grey sets are white on black.
    "omniglot": _TfdsSet("omniglot", (28, 28, 1), invert=True),
    "cifar10": _TfdsSet("cifar10", (32, 32, 3)),
    "svhn": _TfdsSet("svhn_cropped", (32, 32, 3)),
    # 1.3 million and 3 million images: only a slice fits into memory.
    "imagenet32": _TfdsSet(
        "imagenet_resized/32x32", (32, 32, 3), train="train[:50000]", test="validation"
    ),
    "lsun": _TfdsSet(
        "lsun/bedroom",
        (32, 32, 3),
        train="train[:50000]",
        test="train[50000:60000]",
        needs="tensorflow_io",
    ),
}


def find(name: str, data_dir: str | os.PathLike[str] | None = None) -> Found:
    """Returns the data set from the first source that has it.

    Args:
        name: one of `NAMES`, or the stem of npz files in the folder.
        data_dir: the folder of npz files. Defaults to the folder in `TFBNOOD_DATA`, if set.

    Raises:
        DataError: says, in order, what was looked for and how to get it.
    """
    _check_name(name)
    folder = _data_folder(data_dir)
    if folder is not None and (found := _read_npz_folder(name, folder)) is not None:
        return found
    where = str(folder) if folder else f"a folder that {DATA_DIR_VARIABLE} names"
    looked = [_name_npz_files(name, folder)]
    ways = [f"put {name}_train.npz and {name}_test.npz, or {name}.npz, into {where}"]
    reason: Exception | None = None

    if name == "digits":
        return _read_scikit_learn()
    if name == "fashion_mnist":
        if _DEBIAN_FASHION_MNIST.is_dir():
            return _read_debian(_DEBIAN_FASHION_MNIST)
        looked.append(f"the Debian package's {_DEBIAN_FASHION_MNIST}")
        ways.insert(0, "run `apt install dataset-fashion-mnist`")
    if name in _TFDS:
        try:
            return _read_tfds(_TFDS[name])
        # Downloads and builders fail with errors of every type; the user needs one sentence.
        except Exception as error:
            reason = error
            looked.append(f"tensorflow-datasets' {_TFDS[name].tfds_name} ({first_line(error)})")
            module = error.name if isinstance(error, ModuleNotFoundError) else None
            ways.append(f"install {module}" if module else "try again with internet access")
    elif name == "tinyimagenet":
        ways.append('load "imagenet32", which tensorflow-datasets can download, instead')
    else:
        ways.append(f"choose one of {', '.join(NAMES)}")
    raise DataError(
        f"the data set {name!r} was not found: looked for {', then for '.join(looked)}; "
        f"to get it, {', or '.join(ways)}"
    ) from reason


def _check_name(name: str) -> None:
    # No separators and no leading dot, so that a name never leads out of the folder.
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
        raise DataError(
            "name must be the name of a data set, made of letters, digits, '_', '-' and '.', or the path of a folder "
            f"of images or of an npz file. Received: name={name!r}"
        )


def _data_folder(data_dir: str | os.PathLike[str] | None) -> Path | None:
    argument = "data_dir"
    if data_dir is None:
        argument, data_dir = DATA_DIR_VARIABLE, os.environ.get(DATA_DIR_VARIABLE)
        if not data_dir:
            return None
    folder = Path(data_dir)
    if not folder.is_dir():
        raise DataError(f"{argument} must name an existing folder. Received: {str(data_dir)!r}")
    return folder


def has_fashion_mnist() -> bool:
    """Whether Fashion-MNIST is available without a download."""
    return has_npz("fashion_mnist", None) or _DEBIAN_FASHION_MNIST.is_dir()


def has_npz(name: str, data_dir: str | os.PathLike[str] | None) -> bool:
    """Whether the folder of npz files has this data set."""
    folder = _data_folder(data_dir)
    ends = ("_train", "_test", "")
    return folder is not None and any((folder / f"{name}{end}.npz").is_file() for end in ends)


def _read_npz_folder(name: str, folder: Path) -> Found | None:
    files = {split: folder / f"{name}_{split}.npz" for split in ("train", "test")}
    parts = {split: read_part(path) for split, path in files.items() if path.is_file()}
    if parts:
        if len(parts) == 2 and parts["train"].images.shape[1:] != parts["test"].images.shape[1:]:
            raise DataError(
                f"{files['train']} and {files['test']} must hold images of one shape. Received: "
                f"{parts['train'].images.shape[1:]} and {parts['test'].images.shape[1:]}"
            )
        return Found(
            source=", ".join(str(files[split]) for split in parts),
            train=parts.get("train"),
            test=parts.get("test"),
            missing={
                "train": _describe_missing(name, "train", files["train"]),
                "calibration": _describe_missing(name, "calibration", files["train"]),
                "test": _describe_missing(name, "test", files["test"]),
            },
        )
    whole = folder / f"{name}.npz"
    return Found(source=str(whole), whole=read_part(whole)) if whole.is_file() else None


def _describe_missing(name: str, split: str, path: Path) -> str:
    otherwise = ""
    if name in _TFDS:
        otherwise = (
            f", or load it without {DATA_DIR_VARIABLE} and data_dir to ask the system and "
            "tensorflow-datasets"
        )
    return (
        f"{name} has no {split} images: {path} does not exist; put that file "
        f"(uint8 `images` [n, height, width, channels]) into the folder{otherwise}"
    )


def _read_scikit_learn() -> Found:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images[..., None] * (255 / 16)).astype(np.uint8)
    return Found(
        source="scikit-learn's load_digits",
        # Neighbours come from one writer: without a shuffle, the test images would come from other writers.
        whole=Part(images, digits.target.astype(np.int64)),
        test_size=397,
        # With a tenth of so few images, p-values would be too coarse for a threshold of 1 %.
        calibration_size=300,
    )


def _read_debian(folder: Path) -> Found:
    def part(prefix: str) -> Part:
        images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
        labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz").astype(np.int64)
        return Part(as_images(images[..., None], (28, 28, 1)), labels)

    return Found(f"Debian's dataset-fashion-mnist in {folder}", part("train"), part("t10k"))


def _read_tfds(wanted: _TfdsSet) -> Found:
    # Checked first: the builder would notice only after downloading 40 GB.
    if wanted.needs and importlib.util.find_spec(wanted.needs) is None:
        raise ModuleNotFoundError(f"No module named {wanted.needs!r}", name=wanted.needs)
    import tensorflow_datasets as tfds

    builder = tfds.builder(wanted.tfds_name)
    if not builder.is_prepared():
        _check_internet(builder.info.homepage)
        builder.download_and_prepare()
    return Found(
        f"tensorflow-datasets {builder.info.full_name}",
        _read_tfds_part(builder, wanted.train, wanted),
        _read_tfds_part(builder, wanted.test, wanted),
    )


def _check_internet(homepage: str) -> None:
    """Raises at once without internet access; tfds itself would retry for over three minutes."""
    import requests

    # Two hosts, so that one being down is not taken for no internet; any answer will do.
    for url in (homepage, "https://storage.googleapis.com"):
        try:
            requests.head(url, timeout=5)
        except requests.RequestException as error:
            reason = error
        else:
            return
    raise DataError(f"no internet access: {type(reason).__name__} for {url}")


def _read_tfds_part(builder: Any, split: str, wanted: _TfdsSet) -> Part:
    import tensorflow as tf

    def convert(example: dict[str, Any]) -> dict[str, Any]:
        image = example["image"]
        if wanted.image_shape[2] == 1 and image.shape[-1] == 3:
            image = tf.image.rgb_to_grayscale(image)
        if wanted.invert:
            image = 255 - image
        kept = {"image": fit_image(image, wanted.image_shape)}
        if "label" in example:
            kept["label"] = example["label"]
        return kept

    examples = builder.as_dataset(split=split, shuffle_files=False)
    batches = examples.map(convert, num_parallel_calls=tf.data.AUTOTUNE).batch(1000)
    columns: dict[str, list[np.ndarray]] = {}
    for batch in batches.as_numpy_iterator():
        for key, values in batch.items():
            columns.setdefault(key, []).append(values)
    if not columns:
        raise DataError(f"the split {split!r} of {builder.info.full_name} is empty")
    arrays = {key: np.concatenate(values) for key, values in columns.items()}
    return Part(as_images(arrays["image"], wanted.image_shape), arrays.get("label"))


def _name_npz_files(name: str, folder: Path | None) -> str:
    files = f"{name}_train.npz, {name}_test.npz and {name}.npz"
    if folder is None:
        return f"{files} (nowhere, as neither {DATA_DIR_VARIABLE} nor data_dir names a folder)"
    return f"{files} in {folder}"
