"""Reads images as (key, bytes) from files, TFRecords and Parquet files, through Beam's filesystems."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.fileio import EmptyMatchTreatment, MatchAll

from tfbnood.beam.files import MOST_BYTES, check_filesystem, open_file
from tfbnood.beam.rows import parquet_rows, tfrecord_rows
from tfbnood.data.folders import ALL_SUFFIXES
from tfbnood.errors import DataError

__all__ = ["FORMATS", "UNREADABLE", "ReadImages"]

FORMATS = ("files", "tfrecord", "parquet")
UNREADABLE = "unreadable"
_WILDCARDS = "*?["
# Retrying does not help. Other errors of a filesystem are left to the runner, which does retry.
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError)


class ReadImages(beam.PTransform):
    """Reads encoded images: `pipeline | ReadImages("gs://bucket/2026-11/**.jpg")` → (key, bytes).

    Paths are distributed over workers, images are not: they go straight to the next step of the worker that has read
    them. A file that several patterns match is read once. Files cannot be split, so that a few large TFRecords or
    Parquet files keep no more workers busy than there are files.

    Keys of image files are their paths. Records and rows have the key in `key`, or else their file and position,
    `images.parquet#17`, which is the same at every attempt.

    Unreadable content becomes `{"key": …, "reason": …}` with the tag "unreadable".

    Args:
        patterns: one or several, such as `photos/*.png` or `s3://bucket/day-*/**.jpg`. A path without a wildcard and
            without a known suffix is a folder: every PNG, JPEG, BMP, GIF, TIFF and WebP file below it is read.
        format: "files", "tfrecord" (of `tf.train.Example`) or "parquet". Defaults to the suffix of the patterns.
        image: name of the feature or column with the bytes of an image file. A column of structs with a field `bytes`,
            as Hugging Face writes them, will do. Defaults to "image".
        key: name of the feature or column with a unique key.

    Raises:
        DataError: for patterns of several formats, or none.
        TfbnoodError: for a URL whose client is not installed.

    Example:
        import apache_beam as beam

        with beam.Pipeline("FnApiRunner") as pipeline:
            pairs = pipeline | ReadImages(f"{folder}/*.png")
    """

    def __init__(
        self,
        patterns: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        format: str | None = None,
        image: str = "image",
        key: str | None = None,
    ) -> None:
        super().__init__()
        several = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
        self._patterns = [os.fspath(pattern) for pattern in several]
        if not self._patterns or not all(self._patterns):
            raise DataError(f"patterns must name files. Received: patterns={patterns!r}")
        for pattern in self._patterns:
            check_filesystem(pattern)
        found = {_format(pattern) for pattern in self._patterns}
        if format is None and len(found) > 1:
            raise DataError(
                f"patterns must be of one format; read each with its own ReadImages. Received: {sorted(found)}"
            )
        self._format = format or found.pop()
        if self._format not in FORMATS:
            raise DataError(f"format must be one of {', '.join(FORMATS)}. Received: {format!r}")
        self._image, self._key = image, key

    def expand(self, pbegin: Any) -> Any:
        """Gives two PCollections: (key, bytes), and under "unreadable" what cannot be read."""
        reader: beam.DoFn = _ReadFile()
        if self._format != "files":
            read = tfrecord_rows if self._format == "tfrecord" else parquet_rows
            reader = _ReadRows(read, self._image, self._key)
        folders = [pattern for pattern in self._patterns if self._is_folder(pattern)]
        patterns = [pattern for pattern in self._patterns if pattern not in folders]
        matches = []
        if patterns:
            matches.append(pbegin | "Patterns" >> _Match(patterns))
        if folders:
            below = [f"{folder.rstrip('/')}/**" for folder in folders]
            files = pbegin | "Folders" >> _Match(below)
            matches.append(files | "ImagesOnly" >> beam.Filter(_is_image))
        paths = matches | beam.Flatten() if len(matches) > 1 else matches[0]
        # Patterns may overlap; removing duplicates also spreads the paths over workers.
        once = beam.Reshuffle() if len(self._patterns) == 1 else beam.Distinct()
        return paths | once | "Read" >> beam.ParDo(reader).with_outputs(UNREADABLE, main="images")

    def _is_folder(self, pattern: str) -> bool:
        if self._format != "files" or set(pattern) & set(_WILDCARDS):
            return False
        return os.path.splitext(pattern)[1].lower() not in ALL_SUFFIXES


class _Match(beam.PTransform):
    """Paths and sizes of the files that patterns match; each must match some."""

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self._patterns = patterns

    def expand(self, pbegin: Any) -> Any:
        return (
            pbegin
            | beam.Create(self._patterns)
            | MatchAll(EmptyMatchTreatment.DISALLOW)
            | beam.Map(lambda match: (match.path, match.size_in_bytes))
        )


class _ReadFile(beam.DoFn):
    """(path, size) → (path, bytes)."""

    def process(self, element: tuple[str, int]) -> Iterator[Any]:
        path, size = element
        if size > MOST_BYTES:
            yield _make_unreadable(path, f"more than {MOST_BYTES:,} bytes")
            return
        try:
            with open_file(path) as file:
                content = file.read()
        except _PERMANENT as error:
            yield _make_unreadable(path, _describe(error))
        else:
            yield path, content


class _ReadRows(beam.DoFn):
    """(path, size) → (key, bytes) of every record or row of the file."""

    def __init__(self, read: Any, image: str, key: str | None) -> None:
        self._read, self._image, self._key = read, image, key

    def process(self, element: tuple[str, int]) -> Iterator[Any]:
        path, _ = element
        row = -1
        try:
            for row, (key, image) in enumerate(self._read(path, self._image, self._key)):
                name = f"{path}#{row}" if key is None else key
                if image is None:
                    yield _make_unreadable(name, f"no bytes under {self._image!r}")
                else:
                    yield name, image
        except (*_PERMANENT, DataError) as error:
            # A file is read from its start: rows after damage cannot be found.
            yield _make_unreadable(
                f"{path}#{row + 1}", f"{_describe(error)}; the rest of the file is lost"
            )


def _format(pattern: str) -> str:
    name = pattern.rpartition("/")[2].lower()
    if ".tfrecord" in name:
        return "tfrecord"
    return "parquet" if name.endswith((".parquet", ".pq")) else "files"


def _is_image(match: tuple[str, int]) -> bool:
    return os.path.splitext(match[0])[1].lower() in ALL_SUFFIXES


def _make_unreadable(key: str, reason: str) -> beam.pvalue.TaggedOutput:
    return beam.pvalue.TaggedOutput(UNREADABLE, {"key": key, "reason": reason})


def _describe(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0][:200].lower() if isinstance(error, OSError) else text[:200]
