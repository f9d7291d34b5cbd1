"""Reads one file as an image: decodes it, turns it upright, fits it to a shape, and records every conversion.

Without TensorFlow. `decode_image` in `tfbnood.data.formats` is the graph that exported detectors use; it knows PNG and
JPEG only, ignores EXIF and alpha, and stretches.
"""

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfbnood.data.fitting import check_fit, fit_pixels
from tfbnood.data.formats import checked_image_shape, first_line
from tfbnood.errors import DataError

__all__ = ["FORMATS", "KINDS", "Conversions", "UnreadableImageError", "read_image"]

# Pillow's names. A closed list: some of its other readers start programs or follow links.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
KINDS = (
    "resized",
    "enlarged",
    "cropped",
    "padded",
    "stretched",
    "rotated",
    "transparent",
    "sixteen_bit",
    "faint",
    "cmyk",
    "first_frame",
    "colour_to_grey",
    "grey_to_colour",
    "profile",
)

_ORIENTATION = 0x0112
_TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels.swapaxes(0, 1)[::-1, ::-1],
    8: lambda pixels: np.rot90(pixels),
}
_ROWS_AT_ONCE = (
    256  # of the file, as float32: a photograph of 12 megapixels at once would take 144 MB
)


@dataclass(frozen=True)
class Conversions:
    """The conversions of one file to an image.

    The kinds, in the order of `KINDS`:

    - `resized`: it was resampled; `enlarged`: to more rows or columns than it had;
    - `cropped`, `padded`, `stretched`: its aspect ratio differs by more than 1 % from that of the image;
    - `rotated`: turned or mirrored upright, according to its EXIF data;
    - `transparent`: some pixels were not opaque, and were composited over white;
    - `sixteen_bit`: only the high byte of each value was kept; `faint`: no value was above 4095, as in files of
      12-bit cameras, so that the image is nearly black;
    - `cmyk`: converted to RGB without a colour profile;
    - `first_frame`: it holds several frames (an animation, pages, a multi-picture JPEG), and only the first was read;
    - `colour_to_grey`, `grey_to_colour`: judged by the file's mode, whether or not its pixels have colour;
    - `profile`: it has a colour profile other than sRGB, which was ignored.

    Expanding a palette or one bit per pixel loses nothing and is not listed.

    Attributes:
        format: one of `FORMATS`.
        size: `(height, width)` of the picture, upright.
        kinds: some of `KINDS`; empty for a file whose pixels are the image.

    Example:
        >>> "resized" in Conversions("JPEG", (150, 150), ("resized",)).kinds
        True
    """

    format: str
    size: tuple[int, int]
    kinds: tuple[str, ...] = ()


class UnreadableImageError(DataError):
    """A file that cannot be read as an image.

    Attributes:
        reason: why, in a few words.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            "file must be an intact PNG, JPEG, BMP, GIF, TIFF or WebP image. "
            f"Received: {name}: {reason}"
        )
        self.reason = reason


def read_image(
    file: str | os.PathLike[str] | bytes,
    image_shape: tuple[int, int, int],
    *,
    fit: str = "crop",
) -> tuple[np.ndarray, Conversions]:
    """Reads one file as an image of a given shape, and lists what was converted.

    The picture is turned upright by its EXIF data. Transparent pixels are composited over white, as browsers show
    them. 16-bit values keep their high byte; of several frames, the first is read. Grey is
    `0.299 R + 0.587 G + 0.114 B`.

    Each axis is resized on its own. Shrinking takes the mean over the area that an output pixel covers, which exactly
    undoes an enlargement by repeated pixels; growing interpolates linearly. A file that already has the size keeps
    every value, and PNG and JPEG files have the values of TensorFlow's decoders.

    Args:
        file: a path, or the content of a file.
        image_shape: `(height, width, channels)`, with 1 channel (grey) or 3 (colour).
        fit: what to do with another aspect ratio. "crop" takes the largest centred part with the ratio of the image:
            nothing is distorted, but the edges are lost. "pad" keeps the whole picture, centred on black. "stretch"
            keeps the whole picture, distorted. Defaults to "crop".

    Returns:
        The image, uint8 `[height, width, channels]`, and its `Conversions`.

    Raises:
        UnreadableImageError: for a file that is truncated, damaged (PNG has checksums; in other formats damage may go
            unnoticed), of another format, of 32-bit values, or larger than `PIL.Image.MAX_IMAGE_PIXELS`.
        DataError: for a bad shape or `fit`.

    Example:
        >>> from PIL import Image
        >>> Image.fromarray(x.test[0, ..., 0]).resize((16, 20), 0).save(folder / "tall.png")
        >>> image, conversions = read_image(folder / "tall.png", (8, 8, 1))
        >>> image.shape, conversions
        ((8, 8, 1), Conversions(format='PNG', size=(20, 16), kinds=('resized', 'cropped')))
    """
    height, width, channels = checked_image_shape(image_shape)
    check_fit(fit)
    pixels, image_format, kinds = _decode(file, channels)
    size = (pixels.shape[0], pixels.shape[1])
    image, fitted = fit_pixels(pixels, height, width, fit)
    kinds |= fitted
    image = np.repeat(image, channels // image.shape[2], axis=2)
    return np.ascontiguousarray(image), Conversions(
        image_format, size, tuple(kind for kind in KINDS if kind in kinds)
    )


def header(file: str | os.PathLike[str] | bytes) -> tuple[str, tuple[int, int], bool]:
    """The format, the upright `(height, width)` and whether it is stored in grey, without decoding a pixel.

    Raises:
        UnreadableImageError: if the header is not that of an image.
    """
    with _open(file) as (image, _):
        width, height = image.size
        if image.format == "TIFF":  # Depending on its version, Pillow has already turned it.
            width, height = image.tag_v2[256], image.tag_v2[257]
        # Pillow decodes all of a PNG to look for EXIF data behind its pixels.
        turned = (image.format != "PNG" or "exif" in image.info) and _orientation(image) >= 5
        size = (width, height) if turned else (height, width)
        return _format(image), size, _is_grey(image)


def _decode(
    file: str | os.PathLike[str] | bytes, channels: int
) -> tuple[np.ndarray, str, set[str]]:
    """Upright pixels uint8 `[height, width, 1 or channels]`, the format, and the kinds of conversions."""
    kinds = set()
    with _open(file, check=True) as (image, bits):
        stored_in_colour = not _is_grey(image)
        if image.format in ("JPEG", "MPO") and image.mode == "RGB" and channels == 1:
            image.draft("L", None)  # the luma as stored in the file, without a detour through RGB
        if getattr(image, "is_animated", False):
            kinds.add("first_frame")
        if _orientation(image) in _TURNS:
            kinds.add("rotated")
        image.load()
        if bits > 8:
            kinds.add("sixteen_bit")
        if image.mode == "CMYK":
            kinds.add("cmyk")
        if _has_other_profile(image):
            kinds.add("profile")
        pixels = _read_pixels(image, bits, kinds)
        # Read again: Pillow turns TIFF files itself.
        turn = _TURNS.get(_orientation(image))
        pixels = turn(pixels) if turn else pixels
        image_format = _format(image)
    if stored_in_colour and channels == 1:
        kinds.add("colour_to_grey")
        pixels = _luma(pixels) if pixels.shape[2] == 3 else pixels
    elif not stored_in_colour and channels == 3:
        kinds.add("grey_to_colour")
    return pixels, image_format, kinds


@contextlib.contextmanager
def _open(
    file: str | os.PathLike[str] | bytes, *, check: bool = False
) -> Iterator[tuple[Any, int]]:
    """Yields the open image and its bits per value. Any error becomes an `UnreadableImageError`."""
    from PIL import Image

    try:
        with io.BytesIO(file) if isinstance(file, bytes) else Path(file).open("rb") as stream:
            head = stream.read(32)
            if not head:
                raise _Reason("empty")
            if check and head.startswith(b"\x89PNG"):
                # Pillow's decoder skips the checksums, so that some damaged files would pass with wrong pixels.
                stream.seek(0)
                Image.open(stream, formats=("PNG",)).verify()
            stream.seek(0)
            image = Image.open(stream, formats=FORMATS)
            limit = Image.MAX_IMAGE_PIXELS
            if limit is not None and image.width * image.height > limit:
                raise _Reason(f"more than {limit:,} pixels")
            yield image, _bits(image, head)
    # Pillow's readers raise errors of every type for damaged files.
    except Exception as error:
        name = f"{len(file)} bytes" if isinstance(file, bytes) else str(file)
        raise UnreadableImageError(name, _explain(error)) from error


class _Reason(Exception):
    """Why a file is refused, in a few words."""


def _explain(error: Exception) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, _Reason):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return f"more than {Image.MAX_IMAGE_PIXELS:,} pixels"
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return (error.strerror or "").lower()
    text = str(error).lower()
    if "truncated" in text or "could not create decoder object" in text:
        return "truncated"
    if "broken" in text or "unrecognized data stream" in text:
        return "damaged"
    return first_line(error)


def _bits(image: Any, head: bytes) -> int:
    """Bits per value as stored: Pillow silently reads 16-bit colour as 8-bit colour."""
    if image.format == "PNG":
        return head[24]
    if image.format == "TIFF":
        return max(image.tag_v2.get(258, (1,)))
    return 8


def _is_grey(image: Any) -> bool:
    return image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;")


def _format(image: Any) -> str:
    return "JPEG" if image.format == "MPO" else str(image.format)


def _orientation(image: Any) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    # Damaged EXIF data are ignored, as in every viewer.
    except Exception:
        return 1


def _has_other_profile(image: Any) -> bool:
    profile = image.info.get("icc_profile") or b""
    return bool(profile) and b"sRGB" not in profile and b"s\0R\0G\0B" not in profile


def _read_pixels(image: Any, bits: int, kinds: set[str]) -> np.ndarray:
    """Pixels uint8 `[height, width, 1 or 3]` as stored; adds to `kinds` what only pixels show."""
    if image.mode.startswith("I;16") or (image.mode == "I" and bits == 16):
        values = np.asarray(image)
        if 0 < values.max() < 4096:
            kinds.add("faint")
        pixels = (values >> 8).astype(np.uint8)[..., None]
        if "transparency" in image.info:  # one value that means transparent
            clear = values == image.info["transparency"]
            pixels[clear] = 255
            kinds.update(["transparent"] if clear.any() else [])
        return pixels
    if image.mode in ("I", "F"):
        raise _Reason("32-bit values, whose range is unknown")
    grey = _is_grey(image)
    if image.mode in ("LA", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        values = np.asarray(image.convert("RGBA"))
        colour, alpha = values[..., : 1 if grey else 3], values[..., 3:].astype(np.uint16)
        if alpha.min() == 255:
            return colour
        kinds.add("transparent")
        return ((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    if grey or image.mode in ("P", "RGB", "RGBX", "CMYK", "YCbCr"):
        mode = "L" if grey else "RGB"
        # Pillow would copy an image that already has the mode: 50 ms for 12 megapixels.
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
        return pixels[..., None] if grey else pixels
    raise _Reason(f"colours of the kind {image.mode}")


def _luma(pixels: np.ndarray) -> np.ndarray:
    # libpng's integer arithmetic, rounded down: a served detector sees the same values.
    red, green, blue = (pixels[..., channel].astype(np.uint32) for channel in range(3))
    return ((9797 * red + 19234 * green + 3737 * blue) >> 15).astype(np.uint8)[..., None]
