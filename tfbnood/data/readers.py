"""Reading a user's own images: folders of PNG and JPEG files, npz and npy files, `tf.data`."""

import os
import warnings
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from tfbnood.errors import DataError
from tfbnood._core.images import as_images
from tfbnood.data.catalogue import fit_image, read_images

__all__ = ["FolderImages", "decode_image", "from_folder", "from_npz", "from_tf_data"]

_SUFFIXES = frozenset({".png", ".jpg", ".jpeg"})


@dataclass(frozen=True, eq=False)
class FolderImages:
    """What `from_folder` read.

    Attributes:
        images: uint8 `[n, height, width, channels]`.
        paths: the n files, in the order of `images`.
        skipped: the files that could not be read.

    Example:
        >>> found = FolderImages(x.test[:2], paths=(folder / "one.png", folder / "two.png"))
        >>> [(path.name, image.shape) for path, image in zip(found.paths, found.images)]
        [('one.png', (8, 8, 1)), ('two.png', (8, 8, 1))]
    """

    images: np.ndarray
    paths: tuple[Path, ...]
    skipped: tuple[Path, ...] = ()


def from_npz(path: str | os.PathLike[str], key: str = "images") -> np.ndarray:
    """Reads images from an npz file, or from an npy file, which has no keys.

    Args:
        path: the file.
        key: the name of the array in an npz file. Defaults to "images".

    Returns:
        uint8 `[n, height, width, channels]`, checked by `as_images`.

    Raises:
        DataError: when the file is not there or broken, has no such key, or holds no images.

    Example:
        >>> np.savez(folder / "mine.npz", images=x.test[:3])
        >>> from_npz(folder / "mine.npz").shape
        (3, 8, 8, 1)
    """
    return read_images(Path(path), key)


def from_folder(
    folder: str | os.PathLike[str],
    image_shape: tuple[int, int, int],
    *,
    skip_unreadable: bool = False,
    progress: bool = True,
) -> FolderImages:
    """Reads every PNG and JPEG file below a folder, in sorted order.

    Args:
        folder: searched with its subfolders for names that end in .png, .jpg or .jpeg.
        image_shape: `(height, width, channels)` to resize to, with 1 channel (grey) or 3 (colour).
        skip_unreadable: leave files out that cannot be decoded, and name them in a warning.
            Defaults to False, which names them in an error.
        progress: show a progress bar when on a terminal. Defaults to True.

    Raises:
        DataError: when the folder or images in it are not there, or files cannot be decoded.

    Example:
        >>> import tensorflow as tf
        >>> tf.io.write_file(str(folder / "one.png"), tf.io.encode_png(x.test[0]))
        >>> found = from_folder(folder, (8, 8, 1))
        >>> found.images.shape, [path.name for path in found.paths]
        ((1, 8, 8, 1), ['one.png'])
    """
    import tensorflow as tf

    image_shape = _checked_image_shape(image_shape)
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"folder must be an existing folder. Received: {str(folder)!r}")
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES and p.is_file())
    if not paths:
        raise DataError(
            "folder must hold .png, .jpg or .jpeg files, itself or below. "
            f"Received: {str(folder)!r}"
        )

    # One trace for all files; eager, the dozen small ops cost more than the decoding.
    decode = tf.function(
        lambda encoded: decode_image(encoded, image_shape),
        input_signature=[tf.TensorSpec([], tf.string)],
    )
    images = np.empty((len(paths), *image_shape), np.uint8)
    kept: list[Path] = []
    skipped: list[Path] = []
    for path in tqdm(paths, desc=folder.name, unit="image", disable=None if progress else True):
        try:
            images[len(kept)] = decode(path.read_bytes()).numpy()
        except (OSError, tf.errors.InvalidArgumentError):
            skipped.append(path)
        else:
            kept.append(path)

    names = ", ".join(str(path.relative_to(folder)) for path in skipped)
    if skipped and (not skip_unreadable or not kept):
        hint = "; skip_unreadable=True leaves them out" if kept else ""
        raise DataError(
            f"files in {folder} must be readable PNG or JPEG images{hint}. "
            f"Received: {len(skipped)} of {len(paths)} unreadable: {names}"
        )
    if skipped:
        warnings.warn(f"skipped {len(skipped)} unreadable files in {folder}: {names}", stacklevel=2)
    return FolderImages(images[: len(kept)], tuple(kept), tuple(skipped))


def from_tf_data(dataset: Any) -> np.ndarray:
    """Collects the images of a `tf.data.Dataset`.

    Args:
        dataset: finite, of images `[height, width, channels]` or batches of them with values in
            0–255; of tuples, whose first component is taken, as in (image, label); or of
            dictionaries with the key "image", as tensorflow-datasets gives.

    Returns:
        uint8 `[n, height, width, channels]`, checked by `as_images`.

    Raises:
        DataError: when there are no images, no end, or images of several shapes.

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
        raise DataError("dataset must end; use take(). Received: a dataset that repeats for ever")
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
    """Decodes one PNG or JPEG image and resizes it with antialiasing.

    Graph-safe, for `tf.function`, `tf.data` and exported signatures. An image that already has the
    size keeps its values; the aspect ratio is not kept.

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

    image_shape = _checked_image_shape(image_shape)
    # This op reads PNG as well. Its default, and tf.io.decode_image, which has no choice, round the
    # cosine transform so coarsely that photographs differ by up to 8 grey levels from Pillow's.
    image = tf.io.decode_jpeg(encoded, channels=image_shape[2], dct_method="INTEGER_ACCURATE")
    return fit_image(image, image_shape)


def _checked_image_shape(image_shape: Any) -> tuple[int, int, int]:
    sizes = tuple(image_shape) if isinstance(image_shape, (tuple, list)) else ()
    integers = all(isinstance(size, Integral) and int(size) > 0 for size in sizes)
    if len(sizes) != 3 or not integers or sizes[2] not in (1, 3):
        raise DataError(
            "image_shape must be (height, width, channels) with 1 or 3 channels. "
            f"Received: image_shape={image_shape!r}"
        )
    return int(sizes[0]), int(sizes[1]), int(sizes[2])
