"""A model handler for exports, for Beam's own `RunInference`."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from tfbnood._core.stream import CHUNK
from tfbnood.beam.export import local_copy, version_of
from tfbnood.errors import SavedDetectorError, StatisticError

__all__ = ["ExportHandler"]


class ExportHandler(ModelHandler[Any, PredictionResult, Any]):
    """Runs one signature of an exported detector in `RunInference`.

    An example is one row of the signature's input: an image `[height, width, channels]` for `uint8`,
    `serving_default` and `log_prob`, the bytes of a file for `encoded`. The answer is a `PredictionResult` whose
    `inference` has every output of the signature as a NumPy scalar, and whose `model_id` is the version. An example
    for `score_batch` is a group of images `[n, height, width, channels]`, and each output an array `[n]`.

    The version is chosen when the handler is created, so that all workers and retries use the same. It is loaded once
    per process and shared by its threads. For automatic updates give `RunInference` a `model_metadata_pcoll` of
    versions or their `saved_model.pb`, such as `WatchFilePattern("gs://bucket/mine/*/saved_model.pb")`.

    Short batches, as at the end of a bundle, are filled up to `max_batch_size` rows with copies of the last: sums of
    floats depend on how many rows are computed together. So scores are bit for bit the same, however Beam cuts bundles
    and whichever worker retries, on processors of one kind.

    Args:
        model_base: folder with numbered versions, of which the newest is used, or a version; a path or a URL.
        signature: Defaults to "uint8".
        min_batch_size: of Beam's batches. Defaults to 64, the rows that the graph processes at a time: TensorFlow
            adapts to every new number of rows, so that batches of one size are the fastest.
        max_batch_size: of Beam's batches. Defaults to 64.
        max_batch_duration_secs: how long a batch waits for more rows in a stream. Defaults to Beam's rule.
        share_across_processes: keep one model per machine, in a separate process, instead of one per process, for
            large models. Defaults to False.
        complete: fill up short batches as above. Defaults to True; False is faster if most batches are short, as in
            streams of a few images per second.

    Raises:
        SavedDetectorError: if there is no exported version.

    Example:
        import apache_beam as beam
        from apache_beam.ml.inference.base import KeyedModelHandler, RunInference

        with beam.Pipeline("FnApiRunner") as pipeline:
            answers = (
                pipeline
                | beam.Create([("seven", images[0]), ("two", images[1])])
                | RunInference(KeyedModelHandler(ExportHandler(base, signature="log_prob")))
                | beam.MapTuple(lambda key, answer: (key, answer.inference["bits_per_dim"]))
            )
    """

    def __init__(
        self,
        model_base: str | os.PathLike[str],
        *,
        signature: str = "uint8",
        min_batch_size: int = CHUNK,
        max_batch_size: int = CHUNK,
        max_batch_duration_secs: int | None = None,
        share_across_processes: bool = False,
        complete: bool = True,
    ) -> None:
        super().__init__()
        self._version = version_of(model_base)
        self._signature = signature
        self._batching: dict[str, Any] = {
            "min_batch_size": min_batch_size,
            "max_batch_size": max_batch_size,
        }
        if max_batch_duration_secs is not None:
            self._batching["max_batch_duration_secs"] = max_batch_duration_secs
        self._rows = min(max_batch_size, CHUNK) if complete else 1
        if self._takes_groups:  # Each is a separate request.
            self._batching = {"min_batch_size": 1, "max_batch_size": 1}
        self._shared = share_across_processes

    @property
    def version(self) -> str:
        """Folder of the version that answers."""
        return self._version

    def load_model(self) -> "_Signature":
        """Loads the version; `RunInference` calls this once per process."""
        with local_copy(self._version) as folder:
            return _Signature(str(folder), self._version, self._signature)

    def run_inference(
        self,
        batch: Sequence[Any],
        model: "_Signature",
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[PredictionResult]:
        """Answers for a batch of examples, in their order."""
        if self._takes_groups:
            return [PredictionResult(group, model.answer(group), self._version) for group in batch]
        answers = model.answer([*batch, *[batch[-1]] * (-len(batch) % self._rows)])
        columns = list(answers.items())
        return [
            PredictionResult(
                example, {name: values[row] for name, values in columns}, self._version
            )
            for row, example in enumerate(batch)
        ]

    def update_model_path(self, model_path: str | None = None) -> None:
        """Switches to another version; Beam calls this when its side input names one."""
        if model_path:  # `WatchFilePattern` sends "" until there is a new one.
            self._version = version_of(model_path)

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        """Bytes of a batch, for the metrics."""
        return sum(getattr(example, "nbytes", None) or len(example) for example in batch)

    def get_metrics_namespace(self) -> str:
        """The namespace of the metrics of `RunInference`."""
        return "BeamML_tfbnood"

    def batch_elements_kwargs(self) -> Mapping[str, Any]:
        """Options of `beam.BatchElements`."""
        return self._batching

    def share_model_across_processes(self) -> bool:
        """Whether one model serves all processes of a machine."""
        return self._shared

    @property
    def _takes_groups(self) -> bool:
        return self._signature == "score_batch"


class _Signature:
    """A loaded signature, from arrays to arrays: it may live in another process than its caller."""

    def __init__(self, folder: str, version: str, signature: str) -> None:
        import tensorflow as tf

        try:
            # Kept: signatures live as long as the module.
            self._module = tf.saved_model.load(folder)
        except Exception as error:  # TensorFlow raises many kinds for a damaged model.
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise SavedDetectorError(
                f"{version} must be a version that tfbnood exported. Received: one that cannot be loaded ({reason})"
            ) from error
        if signature not in self._module.signatures:
            raise StatisticError(
                f"signature must be one of {', '.join(sorted(self._module.signatures))} for {version}. "
                f"Received: signature={signature!r}"
            )
        self._function = self._module.signatures[signature]
        ((self._input, spec),) = self._function.structured_input_signature[1].items()
        self._dtype = spec.dtype

    def answer(self, rows: Sequence[Any]) -> dict[str, np.ndarray]:
        """Every output for n rows, each `[n]`."""
        import tensorflow as tf

        inputs = list(rows) if self._dtype == tf.string else np.asarray(rows)
        outputs = self._function(**{self._input: tf.constant(inputs, self._dtype)})
        return {name: value.numpy() for name, value in outputs.items()}
