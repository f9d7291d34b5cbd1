"""Pictures inside a page, as large and as good as a budget of bytes allows."""

import base64
import concurrent.futures
import dataclasses
import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.progress import bar
from tfbnood.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "LARGE",
    "THUMBNAILS",
    "Rung",
    "as_url",
    "encode",
    "encode_all",
    "encode_map",
    "image_reader",
]

_SAMPLE = 48
_AT_ONCE = 64
_MAP_SIDE = 128


@dataclasses.dataclass(frozen=True)
class Rung:
    """A size and quality: the longest side in pixels, and WebP's quality; None is lossless."""

    side: int
    quality: int | None


# From best to smallest. Lossless where users look at single pixels.
THUMBNAILS = (
    Rung(64, None),
    Rung(192, 82),
    Rung(160, 78),
    Rung(128, 75),
    Rung(112, 70),
    Rung(96, 70),
    Rung(96, 55),
    Rung(80, 55),
    Rung(64, 50),
    Rung(48, 40),
    Rung(32, 30),
    Rung(16, 20),
)
LARGE = (Rung(64, None), Rung(512, 85), Rung(512, 75), Rung(384, 75), Rung(256, 75), Rung(192, 65))


def image_reader(images: Any, count: int) -> Callable[[int], np.ndarray]:
    """A function from row to checked uint8 pixels, `[height, width]` or `[height, width, 3]`.

    Args:
        images: uint8 `[n, height, width, channels]`, or a function from row to `[height, width, channels]`; sizes may
            differ from row to row.
        count: n.
    """
    if not callable(images):
        if getattr(images, "ndim", None) != 4 or len(images) != count:
            raise DataError(
                f"images must be an array [{count}, height, width, channels], one image per name, or a function "
                f"from row to image. Received: {_describe(images)}"
            )
        images = images.__getitem__

    def read(row: int) -> np.ndarray:
        image = images(row)
        if (
            getattr(image, "dtype", None) != np.uint8
            or image.ndim != 3
            or image.shape[2] not in (1, 3)
            or 0 in image.shape
        ):
            raise DataError(
                "images must be uint8 with 1 or 3 channels on the last axis. "
                f"Received: {_describe(image)} for row {row}"
            )
        return image[..., 0] if image.shape[2] == 1 else image

    return read


def encode(image: np.ndarray, rung: Rung) -> str:
    """A picture no larger than the rung's side, as base64 of WebP or PNG, whichever is smaller; it is never enlarged.

    Example:
        >>> pixels = np.zeros((8, 8), np.uint8)
        >>> as_url(encode(pixels, Rung(64, None)))[:22]
        'data:image/webp;base64'
    """
    picture = _shrink(image, rung.side)
    if rung.quality is None:
        written = [
            _encode(picture, "PNG", optimize=True),
            _encode(picture, "WEBP", lossless=True),
        ]
    else:
        written = [_encode(picture, "WEBP", quality=rung.quality)]
    return base64.b64encode(min(written, key=len)).decode()


def encode_all(
    read: Callable[[int], np.ndarray],
    rows: Sequence[int],
    ladder: Sequence[Rung],
    *,
    most_bytes: float,
    progress: bool = False,
) -> tuple[list[str], Rung]:
    """All pictures on the best rung that keeps within the budget of bytes, and that rung.

    A sample finds the rung; if all pictures together take more, the next one is used. The last rung is used whatever
    its size.
    """
    side = max(rung.side for rung in ladder)

    def read_small(row: int) -> np.ndarray:
        # Shrunk at once: a few dozen photographs at full size would fill the memory.
        return np.asarray(_shrink(read(row), side))

    sample = [read_small(row) for row in rows[:: max(1, len(rows) // _SAMPLE)]]
    largest = max(max(image.shape[:2]) for image in sample)
    # Lossless only for pictures that are not reduced.
    rungs = [one for one in ladder if one.quality is not None or largest <= one.side]
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:

        def encoded(images: Iterable[np.ndarray], rung: Rung) -> list[str]:
            return list(pool.map(lambda image: encode(image, rung), images))

        while len(rungs) > 1:
            if _size(encoded(sample, rungs[0])) / len(sample) * len(rows) <= most_bytes:
                found = _encode_rows(read_small, rows, rungs[0], encoded, progress)
                if _size(found) <= most_bytes:
                    return found, rungs[0]
            rungs.pop(0)
        return _encode_rows(read_small, rows, rungs[0], encoded, progress), rungs[0]


def encode_map(values: np.ndarray) -> str:
    """A heat map to lay over a picture, base64: clear at its lowest value, then yellow, red, crimson at its peak.

    Args:
        values: `[height, width]`, finite; higher means more suspicious.
    """
    from PIL import Image

    values = np.asarray(values, np.float32)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise DataError(
            f"where must hold finite maps [height, width]. Received: {_describe(values)}"
        )
    spread = np.ptp(values)
    share = (values - values.min()) / (spread if spread > 0 else 1)
    scale = _MAP_SIDE / max(share.shape)
    # Smoothed: the blocks of a coarse 7×7 map mean nothing.
    size = [max(1, round(scale * side)) for side in share.shape[::-1]]
    smooth = Image.fromarray(share).resize(size, Image.Resampling.BICUBIC)
    share = np.clip(np.asarray(smooth), 0, 1)
    stops = np.array([0, 0.25, 0.55, 1])
    colours = np.array(
        [[255, 210, 31, 0], [255, 210, 31, 128], [255, 122, 26, 192], [212, 20, 90, 255]]
    )
    channels = [np.interp(share, stops, colours[:, channel]) for channel in range(4)]
    picture = Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))
    return base64.b64encode(_encode(picture, "WEBP", quality=70)).decode()


def as_url(encoded: str) -> str:
    """A `data:` URL of a picture in base64."""
    kind = {"i": "png", "U": "webp", "/": "jpeg"}[encoded[0]]
    return f"data:image/{kind};base64,{encoded}"


def _encode_rows(
    read: Callable[[int], np.ndarray],
    rows: Sequence[int],
    rung: Rung,
    encoded: Callable[[Iterable[np.ndarray], Rung], list[str]],
    progress: bool,
) -> list[str]:
    found: list[str] = []
    shown = None if progress else False  # A bar only after two seconds: most pages take less.
    with bar(description="pictures", unit="image", total=len(rows), progress=shown) as made:
        for start in range(0, len(rows), _AT_ONCE):
            # Read in one thread, since a user's function may not be thread-safe; encoded in many.
            images = [read(row) for row in rows[start : start + _AT_ONCE]]
            found += encoded(images, rung)
            made.update(len(images))
    return found


def _shrink(image: np.ndarray, side: int) -> "Image":
    """A picture whose longest side has at most the given number of pixels."""
    from PIL import Image

    picture = Image.fromarray(image)
    scale = side / max(picture.size)
    if scale >= 1:
        return picture
    size = [max(1, round(scale * one)) for one in picture.size]
    return picture.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _size(encoded: Sequence[str]) -> int:
    return sum(len(one) + 3 for one in encoded)  # with quotes and a comma


def _encode(picture: "Image", kind: str, **options: Any) -> bytes:
    content = io.BytesIO()
    picture.save(content, kind, **options)
    return content.getvalue()


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value).__name__
    return f"shape={tuple(shape)}, dtype={getattr(value, 'dtype', None)}"
