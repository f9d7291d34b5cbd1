"""A whole run: images in, files of scores out, on any of Beam's runners."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from tfbnood.beam.groups import SCORE_BATCH, GroupTest
from tfbnood.beam.score import NAMESPACE, ScoreImages
from tfbnood.beam.write import WriteRecords, beside
from tfbnood.errors import TfbnoodError

__all__ = ["Summary", "score_pipeline"]

_GROUPS = ("group", "images", "tested", "method", "p_value", "is_ood")


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a run did, by its counters; None if the runner reports none, or has not finished.

    Attributes:
        output: where the scores are.
        images: number of images scored.
        out_of_distribution: number of them that raised an alarm.
        invalid: number of them that were black up to one grey level, which counts as an alarm.
        unreadable: number of files that are not images.
        groups: number of groups tested.
        groups_out_of_distribution: number of them that raised an alarm.

    Example:
        Summary("out/scores.jsonl", images=1000, out_of_distribution=12)
    """

    output: str
    images: int | None = None
    out_of_distribution: int | None = None
    invalid: int | None = None
    unreadable: int | None = None
    groups: int | None = None
    groups_out_of_distribution: int | None = None

    def __str__(self) -> str:
        if self.images is None:
            return f"scores are written to {self.output}"
        text = f"{self.out_of_distribution} of {self.images} images out-of-distribution"
        if self.groups:
            text += f", {self.groups_out_of_distribution} of {self.groups} groups"
        stem, suffix = os.path.splitext(self.output)
        return f"{text}, {self.unreadable} unreadable; see {stem}-*{suffix}"


def score_pipeline(
    model_base: str | os.PathLike[str],
    images: Any,
    *,
    output: str | os.PathLike[str],
    fit: str = "crop",
    group_by: str | None = None,
    group_method: str | None = None,
    fdr: float = 0.05,
    permutations: int = 999,
    options: Sequence[str] = (),
    wait: bool = True,
) -> Summary:
    """Scores images with an exported detector, on one of Beam's runners.

    Args:
        model_base: as for `ScoreImages`.
        images: patterns, or a `ReadImages`.
        output: as for `ScoreImages`; unreadable files and groups are listed beside it, in `scores.unreadable.jsonl` and
            `scores.groups.jsonl`.
        fit: as for `ScoreImages`.
        group_by: the `key` of a `GroupTest`. Defaults to no groups.
        group_method: its `method`.
        fdr: its `fdr`.
        permutations: its `permutations`.
        options: Beam's, such as `["--runner=FlinkRunner", "--flink_master=host:8081"]`. Defaults to Beam's own, the
            DirectRunner. Workers elsewhere need this package: see `--sdk_container_image` and `--requirements_file`.
        wait: wait for the end. Defaults to True.

    Raises:
        TfbnoodError: if the pipeline did not finish.
        DataError: for bad arguments, before anything runs.

    Example:
        summary = score_pipeline(
            base, f"{folder}/*.png", output=f"{folder}/scores.jsonl", options=["--runner=FnApiRunner"]
        )
    """
    output = os.fspath(output)
    # First: it sets the options of Beam's filesystems, and transforms look for files when they are created.
    pipeline = beam.Pipeline(options=PipelineOptions(list(options)))
    score = ScoreImages(model_base, images, fit=fit, output=output)
    tests = None
    if group_by is not None:
        test = GroupTest(
            model_base, key=group_by, method=group_method, fdr=fdr, permutations=permutations
        )
        tests = test, WriteRecords(beside(output, "groups"), columns=_GROUPS, shards=1)
    scored = pipeline | "ScoreImages" >> score
    if tests is not None:
        test, write = tests
        images = scored.images if group_method == SCORE_BATCH else scored.scores
        _ = images | "GroupTest" >> test | "WriteGroups" >> write
    try:
        result = pipeline.run()
        if not wait:
            return Summary(output)
        state = result.wait_until_finish()
    except TfbnoodError:
        raise
    except Exception as error:  # Runners raise any error of a worker, with its traceback as text.
        raise TfbnoodError(f"the pipeline failed: {_find_cause(error)}") from error
    if state != PipelineState.DONE:
        raise TfbnoodError(f"the pipeline must end as DONE. Received: {state}")
    return Summary(output, **_read_counters(result, groups=tests is not None))


def _read_counters(result: Any, *, groups: bool) -> dict[str, int | None]:
    """Our counters; one that nothing has counted is 0."""
    names = [field.name for field in dataclasses.fields(Summary)][1 : None if groups else 5]
    try:
        found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    except NotImplementedError:  # Some runners have no metrics.
        return {}
    # Not every runner knows what was committed; attempted counts may include a retried bundle twice.
    counts = {
        one.key.metric.name: one.attempted if one.committed is None else one.committed
        for one in found
    }
    return {name: int(counts.get(name) or 0) for name in names}


def _find_cause(error: Exception) -> str:
    """The last line of a worker's error: runners put its whole traceback into the text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]
