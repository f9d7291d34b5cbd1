"""Reads a folder of image files, all at once or in chunks that are read ahead."""

import itertools
import os
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tfbnood._core.checks import check_integer
from tfbnood._core.progress import bar
from tfbnood.data.file_summary import FileSummary, sentences, summarize
from tfbnood.data.files import Conversions, UnreadableImageError, read_image
from tfbnood.data.fitting import check_fit
from tfbnood.data.formats import checked_image_shape
from tfbnood.errors import DataError

__all__ = [
    "ALL_SUFFIXES",
    "SUFFIXES",
    "FolderChunk",
    "FolderImages",
    "UnreadableFilesError",
    "from_folder",
    "iterate_files",
    "iterate_folder",
    "walk",
]

# Formats that an exported detector can decode, too.
SUFFIXES = frozenset({".png", ".jpg", ".jpeg"})
ALL_SUFFIXES = SUFFIXES | {".bmp", ".gif", ".tif", ".tiff", ".webp"}
# Image formats that cannot be read; the user should be told.
_OTHER_SUFFIXES = frozenset(
    {".avif", ".cr2", ".dng", ".heic", ".heif", ".jfif", ".jp2", ".jxl", ".nef", ".psd", ".svg"}
)
_MOST_NAMED = 10  # files in an error or a warning
_LISTED = 4096  # entries of one folder that are listed before the first image is read


class UnreadableFilesError(DataError):
    """Files that cannot be read as images.

    Attributes:
        folder: their folder, or None for files that were given one by one.
        files: the paths, each with the reason.
        of: number of files examined.
    """

    def __init__(
        self, folder: Path | None, files: Sequence[tuple[Path, str]], of: int, cure: str = ""
    ) -> None:
        where = "" if folder is None else f" in {folder}"
        super().__init__(
            f"files{where} must be readable images{cure}. "
            f"Received: {len(files)} of {of} unreadable: {_name_files(folder, files)}"
        )
        self.folder, self.files, self.of = folder, tuple(files), of


@dataclass(frozen=True, eq=False, repr=False)
class FolderImages:
    """What `from_folder` read.

    Attributes:
        images: uint8 `[n, height, width, channels]`.
        paths: the n files, in the order of `images`.
        skipped: the files that could not be read.
        conversions: those of each of the n files.
        summary: the conversions, counted.

    Example:
        >>> found = FolderImages(x.test[:2], paths=(folder / "one.png", folder / "two.png"))
        >>> [(path.name, image.shape) for path, image in zip(found.paths, found.images)]
        [('one.png', (8, 8, 1)), ('two.png', (8, 8, 1))]
    """

    images: np.ndarray
    paths: tuple[Path, ...]
    skipped: tuple[Path, ...] = ()
    conversions: tuple[Conversions, ...] = ()
    summary: FileSummary | None = None

    def __repr__(self) -> str:
        said = " ".join(["", *sentences(self.summary)]) if self.summary else ""
        shape = "×".join(map(str, self.images.shape[1:]))
        count = f"{len(self.images)} image{'' if len(self.images) == 1 else 's'}"
        return f"<FolderImages: {count} of {shape}.{said}>"


class FolderChunk(NamedTuple):
    """Some files of a folder, as `iterate_folder` yields them.

    Attributes:
        paths: the k files, in the order of `images`.
        images: uint8 `[k, height, width, channels]`.
        conversions: those of each of the k files.
        unreadable: files among and after them that could not be read, each with the reason.
        ignored: files of unsupported image formats since the last chunk, by file extension.

    Example:
        >>> from tfbnood.data.files import Conversions
        >>> chunk = FolderChunk((folder / "one.png",), x.test[:1], (Conversions("PNG", (8, 8)),))
        >>> chunk.unreadable
        ()
    """

    paths: tuple[Path, ...]
    images: np.ndarray
    conversions: tuple[Conversions, ...]
    unreadable: tuple[tuple[Path, str], ...] = ()
    ignored: Mapping[str, int] = MappingProxyType({})

    @property
    def summary(self) -> FileSummary:
        """The conversions, counted; the sum over chunks is the folder's summary."""
        height, width, channels = self.images.shape[1:]
        reasons = [reason for _, reason in self.unreadable]
        shape = (height, width, channels)
        return summarize(self.conversions, shape, skipped=reasons, ignored=self.ignored)


def from_folder(
    folder: str | os.PathLike[str],
    image_shape: tuple[int, int, int],
    *,
    fit: str = "crop",
    skip_unreadable: bool = False,
    progress: bool | None = None,
) -> FolderImages:
    """Reads every image file below a folder, in sorted order, and counts what was converted.

    Args:
        folder: searched with its subfolders for names that end in .png, .jpg, .jpeg, .bmp, .gif, .tif, .tiff or .webp.
            Links to folders are not followed.
        image_shape: `(height, width, channels)` to fit files to, with 1 channel (grey) or 3 (colour), as
            `tfbnood.data.files.read_image` explains.
        fit: what to do with other aspect ratios: "crop", "pad" or "stretch". Defaults to "crop".
        skip_unreadable: skip files that cannot be decoded, and list them in a warning.
            Defaults to False, which lists them in an error.
        progress: show a bar, on a terminal or in a notebook. Defaults to one after two seconds.

    Raises:
        UnreadableFilesError: if files cannot be decoded, with a list of them.
        DataError: if the folder does not exist or has no images.

    Example:
        >>> from PIL import Image
        >>> Image.fromarray(x.test[0, ..., 0]).resize((16, 16), 0).save(folder / "one.png")
        >>> found = from_folder(folder, (8, 8, 1))
        >>> found.images.shape, [path.name for path in found.paths]
        ((1, 8, 8, 1), ['one.png'])
        >>> found
        <FolderImages: 1 image of 8×8×1. 1 of 1 file was resized (from 16×16 to 8×8).>
    """
    image_shape = checked_image_shape(image_shape)
    check_fit(fit)
    folder = check_folder(folder)
    ignored: Counter[str] = Counter()
    unreadable: list[tuple[Path, str]] = []
    paths = list(walk(folder, ignored=ignored, closed=unreadable))
    if not paths and not unreadable:
        raise no_images(folder, ignored)
    images = np.empty((len(paths), *image_shape), np.uint8)
    kept: list[Path] = []
    conversions: list[Conversions] = []
    with bar(
        description=f"reading {folder.name}", unit="image", total=len(paths), progress=progress
    ) as shown:
        for chunk in _chunks(paths, image_shape, fit, 64):
            images[len(kept) : len(kept) + len(chunk.images)] = chunk.images
            kept += chunk.paths
            conversions += chunk.conversions
            unreadable += chunk.unreadable
            shown.update(len(chunk.paths) + len(chunk.unreadable))

    if unreadable and (not skip_unreadable or not kept):
        hint = "; skip_unreadable=True leaves them out" if kept else ""
        raise UnreadableFilesError(folder, unreadable, len(kept) + len(unreadable), hint)
    if unreadable:
        warnings.warn(
            f"skipped {len(unreadable)} unreadable files in {folder}: {_name_files(folder, unreadable)}",
            stacklevel=2,
        )
    reasons = [reason for _, reason in unreadable]
    summary = summarize(conversions, image_shape, skipped=reasons, ignored=ignored)
    skipped = tuple(path for path, _ in unreadable)
    return FolderImages(images[: len(kept)], tuple(kept), skipped, tuple(conversions), summary)


def iterate_folder(
    folder: str | os.PathLike[str],
    image_shape: tuple[int, int, int],
    *,
    fit: str = "crop",
    skip_unreadable: bool = False,
    chunk: int = 64,
) -> Iterator[FolderChunk]:
    """Reads a folder of any size in chunks, ahead of the caller.

    Threads decode up to two chunks while the caller works on one. At most 4,096 names of each folder are listed and
    sorted at a time: a larger folder comes in several sorted runs, the first of them before the others are listed.
    Otherwise the order is that of `from_folder`.

    Args:
        folder: as for `from_folder`.
        image_shape: as for `from_folder`.
        fit: as for `from_folder`.
        skip_unreadable: list files that cannot be decoded in `unreadable` of a chunk. Defaults to False, which raises
            an error at the first of them.
        chunk: images in every chunk but the last.

    Raises:
        UnreadableFilesError: for a file that cannot be decoded, or when none can.
        DataError: when the folder or images in it are not there.

    Example:
        >>> from PIL import Image
        >>> for index in range(5):
        ...     Image.fromarray(x.test[index, ..., 0]).save(folder / f"{index}.png")
        >>> [len(paths) for paths, *_ in iterate_folder(folder, (8, 8, 1), chunk=2)]
        [2, 2, 1]
    """
    image_shape = checked_image_shape(image_shape)
    check_fit(fit)
    check_integer("chunk", chunk, least=1)
    path = check_folder(folder)
    return _checked_chunks(path, _folder_chunks(path, image_shape, fit, chunk), skip_unreadable)


def iterate_files(
    files: Iterable[str | os.PathLike[str]],
    image_shape: tuple[int, int, int],
    *,
    fit: str = "crop",
    skip_unreadable: bool = False,
    chunk: int = 64,
) -> Iterator[FolderChunk]:
    """Reads files in chunks, in the order given, as `iterate_folder` does.

    Args:
        files: their paths, with any extension. A generator is read two chunks ahead of the caller.
        image_shape: as for `from_folder`.
        fit: as for `from_folder`.
        skip_unreadable: as for `iterate_folder`.
        chunk: as for `iterate_folder`.

    Raises:
        UnreadableFilesError: for a file that cannot be decoded, or when none can.
        DataError: when there are no files.

    Example:
        >>> from PIL import Image
        >>> Image.fromarray(x.test[0, ..., 0]).save(folder / "one.png")
        >>> [chunk.images.shape for chunk in iterate_files([folder / "one.png"], (8, 8, 1))]
        [(1, 8, 8, 1)]
    """
    image_shape = checked_image_shape(image_shape)
    check_fit(fit)
    check_integer("chunk", chunk, least=1)
    paths = (Path(file) for file in files)
    empty = "files must hold at least one path. Received: none"
    return _checked_chunks(None, _chunks(paths, image_shape, fit, chunk), skip_unreadable, empty)


def walk(
    folder: str | os.PathLike[str],
    *,
    at_a_time: int | None = None,
    ignored: Counter[str] | None = None,
    closed: list[tuple[Path, str]] | None = None,
) -> Iterator[Path]:
    """Yields the image files below a folder in the order of sorted paths, listing one folder at a time.

    Args:
        folder: where to start. Links to folders are not followed.
        at_a_time: entries of one folder that are listed and sorted before the first of them is yielded; a larger
            folder comes in several sorted runs. Defaults to all.
        ignored: counts the files of unsupported image formats, by file extension.
        closed: collects folders that cannot be listed, each with the reason.

    Example:
        >>> (folder / "b").mkdir()
        >>> for name in ("c.png", "b/a.JPG", "notes.txt", "a.webp"):
        ...     _ = (folder / name).write_bytes(b"")
        >>> [str(path.relative_to(folder)) for path in walk(folder)]
        ['a.webp', 'b/a.JPG', 'c.png']
    """
    for names in _list_entries(folder, at_a_time, ignored, closed):
        for name, is_folder in sorted(names):
            path = Path(folder, name)
            if is_folder:
                yield from walk(path, at_a_time=at_a_time, ignored=ignored, closed=closed)
            else:
                yield path


def _list_entries(
    folder: str | os.PathLike[str],
    at_a_time: int | None,
    ignored: Counter[str] | None,
    closed: list[tuple[Path, str]] | None,
) -> Iterator[list[tuple[str, bool]]]:
    """Names of image files and folders in a folder, and whether each is a folder, for `at_a_time` entries at once."""
    try:
        with os.scandir(folder) as entries:
            while some := list(itertools.islice(entries, at_a_time)):
                names: list[tuple[str, bool]] = []
                for entry in some:
                    if entry.is_dir(follow_symlinks=False):
                        names.append((entry.name, True))
                        continue
                    suffix = os.path.splitext(entry.name)[1].lower()
                    if suffix in ALL_SUFFIXES and entry.is_file():
                        names.append((entry.name, False))
                    elif suffix in _OTHER_SUFFIXES and ignored is not None:
                        ignored[suffix] += 1
                yield names
    except OSError as error:
        if closed is not None:
            closed.append((Path(folder), (error.strerror or str(error)).lower()))


def _folder_chunks(
    folder: Path, image_shape: tuple[int, int, int], fit: str, size: int
) -> Iterator[FolderChunk]:
    ignored: Counter[str] = Counter()
    closed: list[tuple[Path, str]] = []
    empty = True
    paths = walk(folder, at_a_time=_LISTED, ignored=ignored, closed=closed)
    for chunk in _chunks(paths, image_shape, fit, size):
        empty = False
        yield chunk._replace(unreadable=(*chunk.unreadable, *closed), ignored=dict(ignored))
        ignored.clear()
        closed.clear()
    if empty and closed:
        raise UnreadableFilesError(folder, closed, len(closed))
    if empty:
        raise no_images(folder, ignored)


def _checked_chunks(
    folder: Path | None, chunks: Iterator[FolderChunk], skip_unreadable: bool, empty: str = ""
) -> Iterator[FolderChunk]:
    seen = readable = 0
    for chunk in chunks:
        seen += len(chunk.paths) + len(chunk.unreadable)
        readable += len(chunk.paths)
        if chunk.unreadable and (not skip_unreadable or not readable):
            hint = "; skip_unreadable=True leaves them out" if readable else ""
            raise UnreadableFilesError(folder, chunk.unreadable, seen, hint)
        yield chunk
    if not seen:
        raise DataError(empty)


def _chunks(
    paths: Iterable[Path], image_shape: tuple[int, int, int], fit: str, size: int
) -> Iterator[FolderChunk]:
    kept: list[Path] = []
    images: list[np.ndarray] = []
    conversions: list[Conversions] = []
    unreadable: list[tuple[Path, str]] = []

    def taken() -> FolderChunk:
        stacked = np.stack(images) if images else np.empty((0, *image_shape), np.uint8)
        chunk = FolderChunk(tuple(kept), stacked, tuple(conversions), tuple(unreadable))
        for some in (kept, images, conversions, unreadable):
            some.clear()
        return chunk

    for path, read in _read_ahead(paths, image_shape, fit, 2 * size):
        error = read.exception()
        if isinstance(error, UnreadableImageError):
            unreadable.append((path, error.reason))
            continue
        # Only now, so that unreadable files at the end do not form a chunk without images.
        if len(kept) == size:
            yield taken()
        image, converted = read.result()
        kept.append(path)
        images.append(image)
        conversions.append(converted)
    if kept or unreadable:
        yield taken()


def _read_ahead(
    paths: Iterable[Path], image_shape: tuple[int, int, int], fit: str, ahead: int
) -> Iterator[tuple[Path, "Future[tuple[np.ndarray, Conversions]]"]]:
    """Every file with its image, in order; at most `ahead` files are read ahead of the caller."""
    waiting: deque[tuple[Path, Future[tuple[np.ndarray, Conversions]]]] = deque()
    # Pillow and NumPy release Python's lock while they work.
    with ThreadPoolExecutor(_cores(), thread_name_prefix="read_image") as pool:
        try:
            for path in paths:
                waiting.append((path, pool.submit(read_image, path, image_shape, fit=fit)))
                if len(waiting) > ahead:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            for _, read in waiting:
                read.cancel()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_folder(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    if not path.is_dir():
        raise DataError(f"folder must be an existing folder. Received: {str(folder)!r}")
    return path


def no_images(folder: Path, ignored: Counter[str]) -> DataError:
    others = ", ".join(f"{count} {suffix}" for suffix, count in sorted(ignored.items()))
    return DataError(
        "folder must hold image files (.png, .jpg, .jpeg, .bmp, .gif, .tif, .tiff or .webp) in it or below it. "
        f"Received: {str(folder)!r}{f' with {others}' if others else ''}"
    )


def _name_files(folder: Path | None, files: Sequence[tuple[Path, str]]) -> str:
    names = [
        f"{path if folder is None else path.relative_to(folder)} ({reason})"
        for path, reason in files[:_MOST_NAMED]
    ]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
