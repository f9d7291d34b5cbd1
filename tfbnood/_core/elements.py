"""Images one element at a time: arrays with a batch axis from a data set, a generator or a list.

An element is an image or a batch of images. Nothing here looks at the pixels; `as_images` does.
"""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tfbnood.errors import DataError

__all__ = ["count_elements", "elements", "is_picture", "is_stream", "stack_pictures"]

_MODES = {1: "L", 3: "RGB"}  # Pillow's names, by the number of channels


def is_picture(value: Any) -> bool:
    """Whether it is a Pillow image; without importing Pillow."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def is_stream(images: Any) -> bool:
    """Whether images come one by one, as from a `tf.data.Dataset` or a generator, rather than as one array."""
    whole = (list, tuple, str, bytes, Mapping)
    return (
        isinstance(images, Iterable)
        and not isinstance(images, whole)
        and not hasattr(images, "__array__")
        and not is_picture(images)
    )


def count_elements(images: Any) -> int | None:
    """The number of elements of a stream, if known."""
    if hasattr(images, "cardinality"):
        count = int(images.cardinality())
        return count if count >= 0 else None
    return len(images) if hasattr(images, "__len__") else None


def elements(images: Any, name: str) -> Iterator[np.ndarray]:
    """The elements of a stream as arrays `[m, height, width, channels]` of any type; the shapes differ only in m.

    From a tuple such as (images, labels), the first entry is used.

    Raises:
        DataError: if an element is not an image or differs in shape from the first, or if the stream is infinite.
    """
    if (
        hasattr(images, "cardinality") and int(images.cardinality()) == -1
    ):  # tf.data's code for infinite
        raise DataError(
            f"{name} must be finite; take(n) limits a tf.data.Dataset to its first n elements. "
            "Received: a tf.data.Dataset that repeats forever"
        )
    iterator = images.as_numpy_iterator() if hasattr(images, "as_numpy_iterator") else images
    shape, start = None, 0
    for element in iterator:
        batch = _as_batch(element, f"{name}[{start}]", name)
        shape = batch.shape[1:] if shape is None else shape
        if batch.shape[1:] != shape:
            raise DataError(
                f"{name} must all have the shape of the first, {shape}: resize them. "
                f"Received: shape={batch.shape[1:]} for {name}[{start}]"
            )
        start += len(batch)
        yield batch


def stack_pictures(pictures: Iterable[Any], name: str) -> np.ndarray:
    """Joins Pillow images or arrays `[height, width, channels]` of one size and mode into one array."""
    indexed = zip(itertools.count(), pictures)
    arrays = [
        _pixels(one, f"{name}[{index}]") if is_picture(one) else np.asarray(one)
        for index, one in indexed
    ]
    first = arrays[0].shape
    for index, array in enumerate(arrays):
        if array.shape != first:
            raise DataError(
                f"{name} must all have one size and mode: use image.resize((width, height)) and image.convert(mode). "
                f"Received: shape={first} for {name}[0], shape={array.shape} for {name}[{index}]"
            )
    return np.stack(arrays)


def _as_batch(element: Any, where: str, name: str) -> np.ndarray:
    if isinstance(element, tuple) and element:
        element = element[0]
    if isinstance(element, Mapping):
        raise DataError(
            f"{name} must yield images, or (images, labels); for dicts, use dataset.map(lambda row: row[key]). "
            f"Received: a dict with {', '.join(map(str, list(element)[:5]))} for {where}"
        )
    if is_picture(element):
        return _pixels(element, where)[None]
    if isinstance(element, list) and any(map(is_picture, element)):
        return stack_pictures(element, where)
    try:
        array = np.asarray(element)
    except ValueError:
        raise DataError(
            f"{name} must yield images of one shape. Received: {where} that does not stack into an array"
        ) from None
    if array.ndim not in (3, 4):
        raise DataError(
            f"{name} must yield images [height, width, channels] or batches of them. "
            f"Received: shape={array.shape}, dtype={array.dtype} for {where}"
        )
    return array if array.ndim == 4 else array[None]


def _pixels(picture: Any, where: str) -> np.ndarray:
    """The pixels of a Pillow image, `[height, width, channels]`."""
    if picture.mode not in _MODES.values():
        raise DataError(
            f'{where} must be grey or RGB: use convert("L") or convert("RGB"). '
            f"Received: mode={picture.mode!r}"
        )
    pixels = np.asarray(picture)
    return pixels if pixels.ndim == 3 else pixels[..., None]
