"""Writes records to files in shards: JSONL, CSV or Parquet."""

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pyarrow
from apache_beam.io import WriteToParquet, WriteToText

from tfbnood.beam.files import matching
from tfbnood.errors import DataError

__all__ = ["SCORES", "WriteRecords", "beside"]

SUFFIXES = (".jsonl", ".csv", ".parquet")
_TYPES = {
    "key": pyarrow.string(),
    "score": pyarrow.float32(),
    "p_value": pyarrow.float32(),
    "is_ood": pyarrow.bool_(),
    "bits_per_dim": pyarrow.float32(),
    "valid": pyarrow.bool_(),
    "is_ood_certified": pyarrow.bool_(),
    "cluster": pyarrow.int32(),
    "reason": pyarrow.string(),
    "group": pyarrow.string(),
    "images": pyarrow.int64(),
    "tested": pyarrow.int64(),
    "method": pyarrow.string(),
}
_DEFAULT = ("key", "score", "p_value", "is_ood", "bits_per_dim", "valid")
SCORES = (*_DEFAULT, "is_ood_certified", "cluster")
"""All fields that records of `ScoreImages` may have."""


class WriteRecords(beam.PTransform):
    """Writes records to `NAME-00000-of-00004.jsonl` and so on.

    Beam writes each shard under a temporary name and renames all of them at the end: files have every record once,
    however often a worker retried, and a failed run leaves none. A run refuses to write beside the results of another.

    Args:
        path: where to, with the ending .jsonl, .csv or .parquet; a path or a URL. Every shard of a CSV has the
            header.
        columns: of the records, in this order; empty where a record lacks one. Defaults to what every export of a model
            with likelihoods says of an image.
        shards: number of files. Defaults to the runner's choice.

    Raises:
        DataError: for another ending or unknown columns, or if there are already results.

    Example:
        import apache_beam as beam

        with beam.Pipeline("FnApiRunner") as pipeline:
            scored = pipeline | ScoreImages(base, f"{folder}/*.png")
            alarms = scored.scores | beam.Filter(lambda record: record["is_ood"])
            alarms | WriteRecords(f"{folder}/alarms.parquet", shards=1)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] = _DEFAULT,
        shards: int = 0,
    ) -> None:
        super().__init__()
        self._stem, self._suffix = os.path.splitext(os.fspath(path))
        self._columns, self._shards = tuple(columns), shards
        if self._suffix not in SUFFIXES:
            raise DataError(
                f"output must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}. Received: {os.fspath(path)}"
            )
        unknown = [column for column in self._columns if column not in _TYPES]
        if unknown:
            raise DataError(f"columns must be some of {', '.join(_TYPES)}. Received: {unknown}")
        # Another run may have written another number of shards: old ones would remain among the new.
        if found := matching(f"{self._stem}-*-of-*{self._suffix}"):
            raise DataError(
                "output must have no results yet; remove them or choose another name. "
                f"Received: {os.fspath(path)} with {found[0].path}"
            )

    def expand(self, records: Any) -> Any:
        """Returns the paths of the files."""
        if self._suffix == ".parquet":
            schema = pyarrow.schema([(column, _TYPES[column]) for column in self._columns])
            sink = WriteToParquet(
                self._stem, schema, file_name_suffix=self._suffix, num_shards=self._shards
            )
            return records | "Select" >> beam.Map(_select, self._columns) | sink
        is_csv = self._suffix == ".csv"
        return (
            records
            | "ToLine" >> beam.Map(_csv_line if is_csv else _json_line, self._columns)
            | WriteToText(
                self._stem,
                file_name_suffix=self._suffix,
                num_shards=self._shards,
                header=",".join(self._columns) if is_csv else None,
            )
        )


def beside(path: str, name: str) -> str:
    """The path of other results of the same run: `a/scores.jsonl` → `a/scores.NAME.jsonl`."""
    stem, suffix = os.path.splitext(path)
    return f"{stem}.{name}{suffix}"  # Patterns for the one do not match the other.


def _select(record: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    # A version that replaces another in a stream may have other outputs.
    values = {column: record.get(column) for column in columns}
    return {**values, **({"key": str(values["key"])} if "key" in values else {})}


def _json_line(record: dict[str, Any], columns: Sequence[str]) -> str:
    values = {
        # JSON cannot represent them, and one image must not stop a pipeline.
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in _select(record, columns).items()
    }
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def _csv_line(record: dict[str, Any], columns: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(_select(record, columns).values())
    return line.getvalue()
