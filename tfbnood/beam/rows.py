"""The rows of TFRecords and Parquet files, as (key, bytes of an image)."""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from tfbnood.beam.files import MOST_BYTES, open_file
from tfbnood.errors import DataError

__all__ = ["parquet_rows", "tfrecord_rows"]

_ROWS = 64  # of a Parquet file in memory


def tfrecord_rows(
    path: str, image: str, key: str | None
) -> Iterator[tuple[str | None, bytes | None]]:
    from google.protobuf.message import DecodeError
    from tensorflow.core.example.example_pb2 import Example

    with open_file(path, decompress=True) as file:
        for record in _records(file):
            try:
                features = Example.FromString(record).features.feature
            except DecodeError as error:
                raise DataError("a record that is not a tf.train.Example") from error
            values = features[image].bytes_list.value
            names = features[key].bytes_list.value if key else ()
            name = names[0].decode("utf-8", "replace") if names else None
            yield name, values[0] if values else None


def _records(file: Any) -> Iterator[bytes]:
    """The records of a TFRecord: length, its checksum, content, its checksum, little-endian."""
    import google_crc32c

    def checked(content: bytes, checksum: bytes) -> bytes:
        crc = google_crc32c.value(content)
        masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        if len(checksum) < 4 or struct.unpack("<I", checksum)[0] != masked:
            raise DataError("damaged or truncated TFRecord")
        return content

    while head := file.read(12):
        length = struct.unpack("<Q", checked(head[:8], head[8:]))[0]
        if length > MOST_BYTES:
            raise DataError(f"a record of more than {MOST_BYTES:,} bytes")
        content = file.read(length)
        yield checked(content, file.read(4))


def parquet_rows(
    path: str, image: str, key: str | None
) -> Iterator[tuple[str | None, bytes | None]]:
    import pyarrow
    from pyarrow import parquet

    columns = [image] if key is None else [image, key]
    with open_file(path) as file:
        try:
            table = parquet.ParquetFile(file)
            missing = set(columns) - set(table.schema_arrow.names)
            if missing:
                raise DataError(
                    f"no column {sorted(missing)[0]!r} among {', '.join(table.schema_arrow.names)}"
                )
            for batch in table.iter_batches(batch_size=_ROWS, columns=columns):
                names: Iterable[Any] = (
                    [None] * len(batch) if key is None else batch.column(key).to_pylist()
                )
                for name, value in zip(names, batch.column(image).to_pylist(), strict=True):
                    content = value.get("bytes") if isinstance(value, dict) else value
                    content = content if isinstance(content, bytes) else None
                    yield None if name is None else str(name), content
        except (pyarrow.ArrowException, EOFError) as error:
            raise DataError(f"damaged or not a Parquet file ({str(error)[:200]})") from error
