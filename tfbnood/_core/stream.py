"""The border for images of any number: checked chunks, of which the next is read while one is worked on."""

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
"""Images that are held at once, and once more while the next are read."""

_MOST_BYTES = 2**30  # of a sample, however many images it may have


class ImageStream:
    """More than one chunk of images, to be read once.

    Inside, code trusts what it yields, as it does what `as_images` returned.

    Attributes:
        image_shape: `(height, width, channels)`.
        about: how many images there are, if the source says; the last batch may have fewer.

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
        return _read_ahead(self._checked if size == CHUNK else _rechunked(self._checked, size))


def as_chunks(
    images: "Images", image_shape: tuple[int, int, int] | None = None, *, name: str = "images"
) -> np.ndarray | ImageStream:
    """Checks images as `as_images` does, without holding those of a data set or a generator all at once.

    Returns:
        An array where there is one, and where a stream ends within one chunk; an `ImageStream` otherwise, whose first
        chunk is checked.

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
    chunks = _checked(_rechunked(itertools.chain([batch], batches), CHUNK), image_shape, name)
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
    """Images as one checked array: arrays as they are, of a stream a random sample that is read in constant memory.

    Args:
        images: as for `as_chunks`.
        image_shape: the one that is required. Defaults to any with 1 or 3 channels.
        most: images of a stream to keep, and no more than 1 GB of them. A shorter stream is kept whole, in its order.
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
    kept = np.empty((most, *found.image_shape), np.uint8)  # Takes memory only as it is filled.
    seen = 0
    total = None if found.about is None else -(-found.about // CHUNK)
    for chunk in bar(found.chunks(), f"reading {name}", total=total):
        rows = np.arange(seen, seen + len(chunk))
        # Row i stays with probability most / (i + 1), in a random place: then all rows so far are as likely.
        places = np.where(rows < most, rows, random.randint(0, rows + 1))
        for image, place in zip(chunk, places, strict=True):
            if place < most:
                kept[place] = image
        seen += len(chunk)
    return kept[:seen]


def _checked(
    chunks: Iterable[np.ndarray], image_shape: tuple[int, int, int] | None, name: str
) -> Iterator[np.ndarray]:
    start = 0
    for chunk in chunks:
        stop = start + len(chunk)
        yield as_images(chunk, image_shape, name=f"{name}[{start}:{stop}]")
        start = stop


def _rechunked(batches: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Batches of any sizes as copies of one size: a source may fill the same array again and again."""
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
    """The same items, each read in a second thread while the one before is used."""
    pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="tfbnood-read")
    try:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
    finally:
        # Without waiting: a source that hangs must not hold up the error that ends the reading.
        pool.shutdown(wait=False, cancel_futures=True)
