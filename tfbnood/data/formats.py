"""Files and tensors as images: npz, npy, idx, PNG and JPEG, and fitting them to a shape."""

import contextlib
import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from tfbnood._core.images import as_images
from tfbnood.errors import DataError

__all__ = ["Part", "decode_image", "fit_image", "from_npz", "from_tf_data", "read_images"]


@dataclass(frozen=True, eq=False)
class Part:
    """Checked images `[n, h, w, c]` of one file or split, and their labels `[n]` if it has any."""

    images: np.ndarray
    labels: np.ndarray | None = None

    def take(self, index: np.ndarray) -> "Part":
        """Returns the images at `index`, with their labels."""
        return Part(self.images[index], None if self.labels is None else self.labels[index])


def read_images(path: Path, key: str = "images") -> np.ndarray:
    """Reads and checks the images of an npy file, or those under `key` of an npz file."""
    with _open_numpy(path) as opened:
        images, name = opened, f"images in {path}"
        if isinstance(opened, np.lib.npyio.NpzFile):
            images, name = _member(opened, key, path), f"{key} in {path}"
        return as_images(images, name=name)


def read_part(path: Path) -> Part:
    images = read_images(path)
    with _open_numpy(path) as archive:
        if "labels" not in getattr(archive, "files", ()):
            return Part(images)
        labels = _member(archive, "labels", path)
    if labels.shape != images.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"labels in {path} must be integers of shape ({len(images)},), one per image. "
            f"Received: shape={labels.shape}, dtype={labels.dtype}"
        )
    return Part(images, labels.astype(np.int64))


def fit_image(image: Any, image_shape: tuple[int, int, int]) -> Any:
    """Resizes a uint8 tensor `[height, width, channels]` to `image_shape`, antialiased.

    Graph-safe. An image that already fits comes back unchanged, value for value.
    """
    import tensorflow as tf

    resized = tf.image.resize(image, image_shape[:2], antialias=True)
    return tf.ensure_shape(tf.saturate_cast(tf.round(resized), tf.uint8), image_shape)


@contextlib.contextmanager
def _open_numpy(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise DataError(f"path must be an npz or npy file. Received: {path}, which is not a file")
    # Opened here, since np.load leaves a truncated file open. No pickles: they could run any code.
    with path.open("rb") as file:
        yield readable(lambda: np.load(file, allow_pickle=False), path)


def _member(archive: Any, key: str, path: Path) -> np.ndarray:
    if key not in archive.files:
        raise DataError(f"{path} must hold an array named {key!r}. Received: {archive.files}")
    return readable(lambda: archive[key], path)


def readable(read: Callable[[], Any], path: Path) -> Any:
    try:
        return read()
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} must be an intact file of plain numbers, without Python objects. "
            f"Received: {first_line(error)}"
        ) from error


def read_idx(path: Path) -> np.ndarray:
    """Reads a gzipped idx file: the bytes 0, 0, 8 (uint8), rank, big-endian int32 sizes, data."""
    if not path.is_file():
        raise DataError(
            f"{path} is missing, though its folder exists; "
            "run `apt install --reinstall dataset-fashion-mnist`"
        )
    content = readable(lambda: gzip.decompress(path.read_bytes()), path)
    if content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * content[3]:
        raise DataError(f"{path} must be an idx file of unsigned bytes. Received: {content[:4]!r}")
    start = 4 + 4 * content[3]
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], ">i4"))
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{path} must hold {shape} bytes. Received: {len(content) - start} bytes of data"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    line = text[0][:200] if text else ""
    return line if isinstance(error, DataError) else f"{type(error).__name__}: {line}"


def from_npz(path: str | os.PathLike[str], key: str = "images") -> np.ndarray:
    """Reads images from an npz file, or from an npy file, which has no keys.

    Args:
        path: the file.
        key: the name of the array in an npz file. Defaults to "images".

    Returns:
        uint8 `[n, height, width, channels]`, checked by `as_images`.

    Raises:
        DataError: if the file is missing or broken, has no such key, or holds no images.

    Example:
        >>> np.savez(folder / "mine.npz", images=x.test[:3])
        >>> from_npz(folder / "mine.npz").shape
        (3, 8, 8, 1)
    """
    return read_images(Path(path), key)


def from_tf_data(dataset: Any) -> np.ndarray:
    """Collects the images of a `tf.data.Dataset`.

    Args:
        dataset: finite, of images `[height, width, channels]` or batches of them with values in
            0–255; of tuples, whose first component is taken, as in (image, label); or of
            dictionaries with the key "image", as tensorflow-datasets gives.

    Returns:
        uint8 `[n, height, width, channels]`, checked by `as_images`.

    Raises:
        DataError: if there are no images, infinitely many, or images of several shapes.

    Example:
        >>> import tensorflow as tf
        >>> pairs = tf.data.Dataset.from_tensor_slices((x.test, x.test_labels))
        >>> from_tf_data(pairs.batch(100)).shape
        (397, 8, 8, 1)
    """
    import tensorflow as tf

    if not isinstance(dataset, tf.data.Dataset):
        raise DataError(f"dataset must be a tf.data.Dataset. Received: {type(dataset).__name__}")
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise DataError(
            "dataset must be finite; use take(). Received: a dataset that repeats forever"
        )
    batches = []
    for element in dataset.as_numpy_iterator():
        images = element
        if isinstance(element, tuple):
            images = element[0]
        elif isinstance(element, dict):
            if "image" not in element:
                raise DataError(
                    f"dataset must have the key 'image'. Received: keys {list(element)}"
                )
            images = element["image"]
        batches.append(images if np.ndim(images) == 4 else np.asarray(images)[None])
    if not batches:
        raise DataError("dataset must hold at least one image. Received: an empty dataset")
    shapes = sorted({batch.shape[1:] for batch in batches})
    if len(shapes) > 1:
        raise DataError(f"dataset must hold images of one shape. Received: {shapes}")
    return as_images(np.concatenate(batches), name="dataset")


def decode_image(encoded: Any, image_shape: tuple[int, int, int]) -> Any:
    """Decodes one PNG or JPEG image and fits it as `read_image` does: cropped to the aspect ratio, resized by area.

    Graph-safe, for `tf.function`, `tf.data` and exported signatures. An image that already has the
    size keeps its values. TensorFlow's decoder ignores EXIF orientation and transparency.

    Args:
        encoded: a scalar string tensor, the bytes of the file.
        image_shape: `(height, width, channels)`, with 1 channel (grey) or 3 (colour).

    Returns:
        A uint8 tensor of shape `image_shape`.

    Example:
        >>> import tensorflow as tf
        >>> decode_image(tf.io.encode_png(x.test[0]), (4, 4, 3)).shape
        TensorShape([4, 4, 3])
    """
    import tensorflow as tf

    image_shape = checked_image_shape(image_shape)
    # This op reads PNG as well. Its default method, which is the only one of tf.io.decode_image, rounds the
    # cosine transform so coarsely that photographs differ by up to 8 grey levels from Pillow's.
    image = tf.io.decode_jpeg(encoded, channels=image_shape[2], dct_method="INTEGER_ACCURATE")
    return _crop_and_resize(image, image_shape)


def _crop_and_resize(image: Any, image_shape: tuple[int, int, int]) -> Any:
    """Does what `tfbnood.data.fitting.fit_pixels` does with "crop", as a graph."""
    import tensorflow as tf

    height, width = image_shape[:2]
    rows, columns = tf.shape(image)[0], tf.shape(image)[1]
    kept_rows = tf.clip_by_value(_round_ratio(columns * height, width), 1, rows)
    kept_columns = tf.clip_by_value(_round_ratio(rows * width, height), 1, columns)
    top, left = (rows - kept_rows) // 2, (columns - kept_columns) // 2
    cut = tf.cast(image[top : top + kept_rows, left : left + kept_columns], tf.float32)
    resized = tf.einsum("ar,rkc->akc", _line_weights(kept_rows, height), cut)
    resized = tf.einsum("bk,akc->abc", _line_weights(kept_columns, width), resized)
    return tf.ensure_shape(tf.saturate_cast(tf.round(resized), tf.uint8), image_shape)


def _round_ratio(numerator: Any, denominator: int) -> Any:
    """A quotient of integers, rounded as Python's `round` does: halves to even."""
    import tensorflow as tf

    return tf.cast(tf.round(tf.cast(numerator, tf.float64) / denominator), tf.int32)


def _line_weights(old: Any, new: int) -> Any:
    """The weights of `old` pixels of a line in `new` ones, `[new, old]`: by area, or linear if it grows."""
    import tensorflow as tf

    scale = tf.cast(old, tf.float32) / new
    targets = tf.range(new, dtype=tf.float32)[:, None]
    sources = tf.range(tf.cast(old, tf.float32))
    begin = targets * scale
    overlap = tf.minimum(begin + scale, sources + 1) - tf.maximum(begin, sources)
    centres = tf.clip_by_value(begin + 0.5 * scale - 0.5, 0.0, tf.cast(old, tf.float32) - 1)
    near = 1 - tf.abs(sources - centres)
    return tf.nn.relu(tf.where(old > new, overlap / scale, near))


def checked_image_shape(image_shape: Any) -> tuple[int, int, int]:
    sizes = tuple(image_shape) if isinstance(image_shape, (tuple, list)) else ()
    integers = all(isinstance(size, Integral) and int(size) > 0 for size in sizes)
    if len(sizes) != 3 or not integers or sizes[2] not in (1, 3):
        raise DataError(
            "image_shape must be (height, width, channels) with 1 or 3 channels. "
            f"Received: image_shape={image_shape!r}"
        )
    return int(sizes[0]), int(sizes[1]), int(sizes[2])
