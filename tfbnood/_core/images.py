"""The border of the package: turns whatever a user passes as images into one checked uint8 array.

Inside, code trusts what `as_images` returned: uint8, `[n, height, width, channels]`, n > 0, values 0–255.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tfbnood._core.elements import elements, is_picture, is_stream, stack_pictures
from tfbnood.errors import DataError

if TYPE_CHECKING:
    import PIL.Image
    import tensorflow as tf

    Image: TypeAlias = np.ndarray | tf.Tensor | PIL.Image.Image
    Images: TypeAlias = (
        np.ndarray | tf.Tensor | tf.data.Dataset | Sequence[Image] | Iterable[Image | tuple]
    )
    """What every public function accepts as images: values in 0–255, all images of one shape, 1 or 3 channels.

    - an array or tensor `[n, height, width, channels]`;
    - a list of arrays `[height, width, channels]` or of Pillow images in mode L or RGB;
    - a `tf.data.Dataset`, a generator or another iterable of such images, of batches of them, or of tuples that start
      with either, such as (images, labels).
    """

__all__ = ["as_images"]


def as_images(
    images: "Images", image_shape: tuple[int, int, int] | None = None, *, name: str = "images"
) -> np.ndarray:
    """Checks images and returns them as uint8 `[n, height, width, channels]`.

    Floats and wider integers are accepted if they lie in 0–255; fractions are rounded, since likelihoods are
    defined for discrete images.

    An image whose largest value is above 0 and at most 1 is taken for one in 0–1 and refused, whatever its type and
    the other images. An exported detector follows the same rule. The rule also refuses an image that is black up to
    one grey level; leave such images out, or make them black.

    Args:
        images: an array or tensor of shape `[n, height, width, channels]`, values in 0–255; a list of arrays or of
            Pillow images; or a `tf.data.Dataset` or generator, which is read into memory as a whole. For those that do
            not fit, use `as_chunks`.
        image_shape: the required `(height, width, channels)`. Defaults to any with 1 or 3 channels.
        name: what to call the argument in an error.

    Raises:
        DataError: names the argument, the rule and what was received.

    Example:
        >>> as_images(np.zeros((2, 8, 8, 1)), (8, 8, 1)).dtype
        dtype('uint8')
    """
    array = _to_array(images, name)
    _check_dtype(array, name)
    _check_shape(array, image_shape, name)
    _check_range(array, name)
    if array.dtype == np.uint8:
        return array
    return np.rint(array).astype(np.uint8)


def _to_array(images: Any, name: str) -> np.ndarray:
    if is_picture(images):
        raise DataError(
            f"{name} must be a list of images; write a single one as [image]. Received: a Pillow image"
        )
    if is_stream(images):
        found = [
            np.array(one) for one in elements(images, name)
        ]  # Copied: a source may reuse its array.
        if not found:
            raise DataError(f"{name} must hold at least one image. Received: an empty stream")
        return np.concatenate(found)
    if isinstance(images, list | tuple) and any(map(is_picture, images)):
        return stack_pictures(images, name)
    try:
        return np.asarray(images)
    except ValueError as error:  # a list of images of several sizes
        raise DataError(
            f"{name} must all have one shape. Received: a {type(images).__name__} that does not "
            "stack into an array"
        ) from error


def _check_dtype(array: np.ndarray, name: str) -> None:
    if array.dtype == np.bool_ or not (
        np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating)
    ):
        raise DataError(
            f"{name} must hold numbers in 0–255 (uint8, or another integer or float dtype). "
            f"Received: dtype={array.dtype}"
        )


def _check_shape(array: np.ndarray, image_shape: tuple[int, int, int] | None, name: str) -> None:
    if array.ndim != 4:
        sizes = ("height", "width", "channels") if image_shape is None else image_shape
        wanted = f"[n, {', '.join(map(str, sizes))}]"
        hint = ""
        if array.ndim == 3:
            hint = "; images[..., None] adds a channel axis, images[None] the batch axis of a single image"
        raise DataError(
            f"{name} must have the four axes {wanted}{hint}. Received: shape={array.shape}"
        )
    if image_shape is not None and array.shape[1:] != tuple(image_shape):
        raise DataError(
            f"{name} must have (height, width, channels)={tuple(image_shape)}. Received: shape={array.shape}"
        )
    if 0 in array.shape:
        raise DataError(f"{name} must hold at least one image. Received: shape={array.shape}")
    if array.shape[3] not in (1, 3):
        raise DataError(
            f"{name} must have 1 or 3 channels on the last axis. Received: shape={array.shape}"
        )


def _check_range(array: np.ndarray, name: str) -> None:
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
        raise DataError(
            f"{name} must be finite. Received: NaN or infinite pixels in {len(bad)} of {len(array)} images, "
            f"first at index {bad[0]}"
        )
    low, high = array.min(), array.max()
    if low < 0 or high > 255:
        raise DataError(f"{name} must lie in 0–255. Received: values from {low} to {high}")
    # Images that are black up to one grey level are rare; images in 0–1, even cast to integers, are common.
    largest = array.reshape(len(array), -1).max(axis=1)
    bad = np.flatnonzero((largest > 0) & (largest <= 1))
    if len(bad):
        raise DataError(
            f"{name} must lie in 0–255, not 0–1: multiply by 255. Received: {len(bad)} of {len(array)} images with "
            f"largest values in (0, 1], first at index {bad[0]}, dtype={array.dtype}"
        )
