"""`ScoreImages`: the transform from images to scores."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference

from tfbnood._core.checks import check_integer
from tfbnood.beam.decode import Decode
from tfbnood.beam.export import find_export
from tfbnood.beam.handler import ExportHandler
from tfbnood.beam.read import UNREADABLE, ReadImages
from tfbnood.beam.write import SCORES, WriteRecords, beside
from tfbnood.data.fitting import check_fit

__all__ = ["NAMESPACE", "ScoreImages", "Scored"]

NAMESPACE = "tfbnood"  # of the counters


class Scored(NamedTuple):
    """The outputs of `ScoreImages`.

    Attributes:
        scores: PCollection of `{"key", "score", "p_value", "is_ood", "valid", …}`, one per image.
        unreadable: PCollection of `{"key", "reason"}`, one per file that is not an image.
        images: PCollection of (key, uint8 image), as they were scored.

    Example:
        Scored(scores=None, unreadable=None, images=None)._fields
    """

    scores: Any
    unreadable: Any
    images: Any


class ScoreImages(beam.PTransform):
    """Scores images with an exported detector.

    `pairs | ScoreImages("savedmodels/mine")` takes (key, bytes of a file), or (key, uint8 image);
    `pipeline | ScoreImages("savedmodels/mine", "gs://bucket/**.jpg")` reads files itself. They are decoded and fitted
    like in `tfbnood.data.from_folder`, and scored by `RunInference` with the signature `uint8`.

    A record has what a server answers: `score` (higher is stranger), `p_value`, `is_ood` at the rate of the export,
    `valid`, False for an image that is black up to one grey level, which counts as out-of-distribution; and, where the
    export has them, `bits_per_dim`, `is_ood_certified` and `cluster`.

    Counters under "tfbnood": `images`, `out_of_distribution`, `invalid`, `unreadable`; `RunInference` has its own under
    "BeamML_tfbnood".

    Args:
        model_base: folder with exported versions, of which the newest is used when the pipeline is built, or a version;
            a path or a URL.
        images: patterns, or a `ReadImages`. Defaults to none: the input is a PCollection of pairs.
        fit: what to do with other aspect ratios: "crop", "pad" or "stretch". Defaults to "crop".
        output: write the records to shards of `scores.jsonl`, `scores.csv` or `scores.parquet`, and unreadable files to
            `scores.unreadable.jsonl` or the like.
        model_updates: for automatic updates of the version: a pattern to watch in a stream, such as
            `savedmodels/mine/*/saved_model.pb`, or a PCollection of `ModelMetadata`.
        batch_size: images per call of the model. Defaults to 64.

    Raises:
        SavedDetectorError: if there is no exported version.
        DataError: for a bad `fit` or `output`.

    Example:
        import apache_beam as beam

        with beam.Pipeline("FnApiRunner") as pipeline:
            scored = pipeline | ScoreImages(base, f"{folder}/*.png")
            alarms = scored.scores | beam.Filter(lambda record: record["is_ood"])
    """

    def __init__(
        self,
        model_base: str | os.PathLike[str],
        images: "str | os.PathLike[str] | Sequence[str] | ReadImages | None" = None,
        *,
        fit: str = "crop",
        output: str | os.PathLike[str] | None = None,
        model_updates: Any = None,
        batch_size: int = 64,
    ) -> None:
        super().__init__()
        check_fit(fit)
        check_integer("batch_size", batch_size, least=1)
        self._export = find_export(model_base)
        self._read = (
            images if images is None or isinstance(images, ReadImages) else ReadImages(images)
        )
        self._fit = fit
        self._output = None if output is None else os.fspath(output)
        self._updates = model_updates
        self._batch_size = batch_size
        if self._output is not None:
            self._writer(self._output)  # Fail now, not when the pipeline is built.

    def expand(self, pairs: Any) -> Any:
        """Returns a `Scored`; the annotation is one that Beam understands."""
        unreadable = []
        if self._read is not None:
            read = pairs | "ReadImages" >> self._read
            pairs = read.images
            unreadable.append(read[UNREADABLE])
        decode = beam.ParDo(Decode(self._export.image_shape, self._fit))
        decoded = pairs | "Decode" >> decode.with_outputs(UNREADABLE, main="images")
        unreadable.append(decoded[UNREADABLE])
        handler = ExportHandler(
            self._export.version,
            min_batch_size=self._batch_size,
            max_batch_size=self._batch_size,
        )
        updates: dict[str, Any] = {}
        if self._updates is not None:
            watched = isinstance(self._updates, str)
            updates["watch_model_pattern" if watched else "model_metadata_pcoll"] = self._updates
        scores = (
            decoded.images
            | "Score" >> RunInference(KeyedModelHandler(handler), **updates)
            | "Records" >> beam.ParDo(_Records())
        )
        lost = unreadable | beam.Flatten() | "CountUnreadable" >> beam.ParDo(_Count("unreadable"))
        if self._output is not None:
            _ = scores | "Write" >> self._writer(self._output)
            other = beside(self._output, "unreadable")
            _ = lost | "WriteUnreadable" >> WriteRecords(other, columns=("key", "reason"))
        return Scored(scores, lost, decoded.images)

    def _writer(self, output: str) -> WriteRecords:
        known = ("key", *self._export.outputs)
        return WriteRecords(output, columns=[name for name in SCORES if name in known])


class _Records(beam.DoFn):
    """Turns answers of the model into plain records, without the pixels."""

    def __init__(self) -> None:
        names = ("images", "out_of_distribution", "invalid")
        self._images, self._alarms, self._invalid = (
            Metrics.counter(NAMESPACE, name) for name in names
        )

    def process(self, element: tuple[Any, Any]) -> Any:
        key, answer = element
        record = {"key": key, **{name: value.item() for name, value in answer.inference.items()}}
        self._images.inc()
        self._alarms.inc(record["is_ood"])
        self._invalid.inc(not record["valid"])
        yield record


class _Count(beam.DoFn):
    """Counts the records."""

    def __init__(self, name: str) -> None:
        self._counter = Metrics.counter(NAMESPACE, name)

    def process(self, element: Any) -> Any:
        self._counter.inc()
        yield element
