"""A folder of PNG and JPEG files as images."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tfbnood.data.formats import checked_image_shape, decode_image
from tfbnood.errors import DataError

__all__ = ["SUFFIXES", "FolderImages", "from_folder"]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg"})


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

    image_shape = checked_image_shape(image_shape)
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"folder must be an existing folder. Received: {str(folder)!r}")
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
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
