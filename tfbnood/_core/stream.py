"""The border for any number of images: checked chunks, read ahead while the previous one is processed."""

import concurrent.futures
import itertools
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tfbnood._core.elements import count_elements, elements, is_stream
from tfbnood._core.images import as_images
from tfbnood._core.progress import bar
from tfbnood.errors import DataError

if TYPE_CHECKING:
    from tfbnood._core.images import Images

__all__ = ["CHUNK", "ImageStream", "as_chunks", "sample_images"]

CHUNK = 64
"""Images per chunk in memory; while the next chunk is read, twice as many."""

_MOST_BYTES = 2**30  # of a sample, whatever its number of images


class ImageStream:
    """More than one chunk of images; can be read once.

    Code inside the package trusts its chunks as it trusts the result of `as_images`.

    Attributes:
        image_shape: `(height, width, channels)`.
        about: approximate number of images, if the source knows it; the last batch may be smaller.

    Example:
        >>> stream = as_chunks(iter(x.test))
        >>> [len(chunk) for chunk in stream.chunks(150)]
        [150, 150, 97]
    """

    def __init__(self, first: np.ndarray, others: Iterator[np.ndarray], about: int | None):
        self.image_shape: tuple[int, int, int] = first.shape[1:]
        self.about = about
        self._checked = itertools.chain([first], others)

    def chunks(self, size: int = CHUNK) -> Generator[np.ndarray, None, None]:
        """Checked images, uint8 `[size, height, width, channels]`; the last chunk may be shorter."""
        return _read_ahead(self._checked if size == CHUNK else _rechunk(self._checked, size))


def as_chunks(
    images: "Images", image_shape: tuple[int, int, int] | None = None, *, name: str = "images"
) -> np.ndarray | ImageStream:
    """Checks images as `as_images` does, without holding all of a data set or generator in memory.

    Returns:
        An array for an array, or for a stream that fits into one chunk; otherwise an `ImageStream` whose first chunk is
        already checked.

    Example:
        >>> as_chunks(iter(x.test[:9]), (8, 8, 1)).shape
        (9, 8, 8, 1)
    """
    if not is_stream(images):
        return as_images(images, image_shape, name=name)
    batches = elements(images, name)
    batch = next(batches, None)
    if batch is None:
        raise DataError(f"{name} must hold at least one image. Received: an empty stream")
    count = count_elements(images)
    about = None if count is None else count * len(batch)
    chunks = _check_each(_rechunk(itertools.chain([batch], batches), CHUNK), image_shape, name)
    first = next(chunks)
    return first if len(first) < CHUNK else ImageStream(first, chunks, about)


def sample_images(
    images: "Images",
    image_shape: tuple[int, int, int] | None = None,
    *,
    most: int = 10_000,
    seed: int = 0,
    name: str = "images",
) -> np.ndarray:
    """One checked array: an array as it is, or a random sample of a stream, read in constant memory.

    Args:
        images: as for `as_chunks`.
        image_shape: the required one. Defaults to any with 1 or 3 channels.
        most: images of a stream to keep, at most 1 GB. A shorter stream is kept whole, in its order.
        seed: of the sample.
        name: what to call the argument in an error.

    Example:
        >>> sample_images(iter(x.test), most=100).shape
        (100, 8, 8, 1)

    Reference: Vitter, Random sampling with a reservoir, 1985 (algorithm R).
    """
    found = as_chunks(images, image_shape, name=name)
    if isinstance(found, np.ndarray):
        return found
    most = max(1, min(most, _MOST_BYTES // int(np.prod(found.image_shape))))
    random = np.random.RandomState(seed)
    kept = np.empty((most, *found.image_shape), np.uint8)  # Memory is used only as rows are filled.
    seen = 0
    total = None if found.about is None else -(-found.about // CHUNK)
    for chunk in bar(found.chunks(), f"reading {name}", total=total):
        rows = np.arange(seen, seen + len(chunk))
        # Row i stays with probability most / (i + 1), in a random place: then all rows so far are equally likely.
        places = np.where(rows < most, rows, random.randint(0, rows + 1))
        for image, place in zip(chunk, places, strict=True):
            if place < most:
                kept[place] = image
        seen += len(chunk)
    return kept[:seen]


def _check_each(
    chunks: Iterable[np.ndarray], image_shape: tuple[int, int, int] | None, name: str
) -> Iterator[np.ndarray]:
    start = 0
    for chunk in chunks:
        stop = start + len(chunk)
        yield as_images(chunk, image_shape, name=f"{name}[{start}:{stop}]")
        start = stop


def _rechunk(batches: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Copies batches of any size into batches of one size. Copies, since a source may reuse its array."""
    parts: list[np.ndarray] = []
    count = 0
    for batch in batches:
        while len(batch):
            parts.append(np.array(batch[: size - count]))
            batch, count = batch[size - count :], count + len(parts[-1])
            if count == size:
                yield parts[0] if len(parts) == 1 else np.concatenate(parts)
                parts, count = [], 0
    if parts:
        yield np.concatenate(parts)


def _read_ahead(items: Iterator[np.ndarray]) -> Generator[np.ndarray, None, None]:
    """The same items; a second thread reads the next one while the caller uses the current one."""
    pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="tfbnood-read")
    try:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
    finally:
        # Without waiting: a source that hangs must not delay the error that ended the reading.
        pool.shutdown(wait=False, cancel_futures=True)
