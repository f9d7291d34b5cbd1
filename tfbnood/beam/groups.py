"""`GroupTest`: one p-value for each group of images, such as a camera and an hour."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference

from tfbnood._core.checks import check_integer
from tfbnood.beam.counts import Counts, Rank, group_p_value
from tfbnood.beam.decode import Decode
from tfbnood.beam.export import find_export
from tfbnood.beam.group_keys import group_function
from tfbnood.beam.handler import ExportHandler
from tfbnood.beam.read import UNREADABLE
from tfbnood.beam.sample import SmallestDigests
from tfbnood.beam.score import NAMESPACE
from tfbnood.data.fitting import check_fit
from tfbnood.errors import DataError, StatisticError

__all__ = ["SCORE_BATCH", "GroupTest"]

SCORE_BATCH = "score_batch"


class GroupTest(beam.PTransform):
    r"""Tests groups of images as a whole: do they come from the same distribution as the calibration images?

    `scored.scores | GroupTest("savedmodels/mine", key=r"(cam\d+)/(\d{8}T\d{2})")` takes the records of `ScoreImages`
    and combines the p-values of a group's images by a test of `tfbnood.batch_tests`. Only counts of each group are
    kept, however many images it has. After `calibrate(…, clusters=…)` a change of the clusters' shares does not count
    as evidence, as for `Detector.test_batch`.

    `scored.images | GroupTest(…, method="score_batch")` takes (key, image) or (key, bytes of a file) instead, and calls
    the signature `score_batch`: the paper's Δ, or the shift of the moments of a network. It tests a sample of each
    group, the images whose keys have the smallest digests, as many as the export was calibrated for.

    The result is one record per group: `{"group", "images", "tested", "method", "p_value", "is_ood"}`. `is_ood` is the
    decision of Benjamini and Hochberg over all groups of the window: of the flagged groups, a share of at most `fdr` is
    expected to be in-distribution. It needs p-values of about `fdr / groups`, and no p-value lies below
    `1/(permutations + 1)`: use more permutations for thousands of groups. The p-values of `score_batch` have the
    resolution of its calibration, 1/51 for the Δ.

    Invalid images and files that are not images are left out. Images without a group are left out, and counted under
    "tfbnood" as `ungrouped`; the other counters are `groups` and `groups_out_of_distribution`.

    Args:
        model_base: as for `ScoreImages`, the export that made the scores.
        key: function from an image's key to its group, None for an image without one; or a regular expression to search
            for in the key, whose parts in parentheses, joined by "/", are the group.
        method: a name of `tfbnood.batch_tests.BATCH_TESTS`, or "score_batch". Defaults to "higher_criticism", and
            "simes" for groups of fewer than 10 images.
        fdr: expected share of false alarms among the flagged groups. Defaults to 0.05.
        permutations: random groups to compare with, for every size that occurs. Defaults to 999.
        most_images: maximum number of images to test in a group; from larger ones, a random sample. Defaults to 10,000.
        fit: for "score_batch", as for `ScoreImages`.

    Raises:
        SavedDetectorError: if there is no exported version.
        StatisticError: for an unknown method, or an export without `score_batch`.
        DataError: for a bad key or number.

    Example:
        import apache_beam as beam

        with beam.Pipeline("FnApiRunner") as pipeline:
            scored = pipeline | ScoreImages(base, f"{folder}/*.png")
            tests = scored.scores | GroupTest(base, key=lambda path: path.rpartition("/")[0])
    """

    def __init__(
        self,
        model_base: str | os.PathLike[str],
        *,
        key: Callable[[Any], Any] | str,
        method: str | None = None,
        fdr: float = 0.05,
        permutations: int = 999,
        most_images: int = 10_000,
        fit: str = "crop",
    ) -> None:
        super().__init__()
        check_fit(fit)
        check_integer("permutations", permutations, least=1)
        check_integer("most_images", most_images, least=1)
        if not 0 < fdr < 1:
            raise DataError(f"fdr must lie in (0, 1). Received: fdr={fdr}")
        self._group_of = group_function(key)
        self._export = find_export(model_base)
        if method == SCORE_BATCH and not self._export.group_sizes:
            raise StatisticError(
                'method "score_batch" needs an export with that signature; export with held_out. '
                f"Received: {self._export.version}"
            )
        if method not in (None, SCORE_BATCH):
            _check_method(method)
        self._method, self._fdr, self._fit = method, fdr, fit
        self._permutations, self._most_images = permutations, most_images

    def expand(self, images: Any) -> Any:
        """Gives one record per group."""
        tests = self._by_model(images) if self._method == SCORE_BATCH else self._by_scores(images)
        return (
            tests
            | "OneList" >> beam.Map(lambda record: (None, record))
            | beam.GroupByKey()
            | "Decide" >> beam.ParDo(_Decide(self._fdr))
        )

    def _by_scores(self, records: Any) -> Any:
        calibration = self._export.cluster_images or (self._export.calibration_images,)
        test = functools.partial(
            _test,
            calibration=calibration,
            method=self._method,
            permutations=self._permutations,
            most_images=self._most_images,
        )
        return (
            records
            | "Valid" >> beam.Filter(lambda record: record["valid"])
            | "Ranks" >> beam.Map(lambda record: (record["key"], _rank(record, calibration)))
            | "Groups" >> beam.ParDo(_Group(self._group_of))
            | beam.CombinePerKey(Counts())
            | "Test" >> beam.MapTuple(lambda group, counts: test(group, counts))
        )

    def _by_model(self, pairs: Any) -> Any:
        decode = beam.ParDo(Decode(self._export.image_shape, self._fit))
        handler: Any = KeyedModelHandler(ExportHandler(self._export.version, signature=SCORE_BATCH))
        return (
            (pairs | "Decode" >> decode.with_outputs(UNREADABLE, main="images")).images
            | "Named" >> beam.MapTuple(lambda key, image: (key, (str(key), image)))
            | "Groups" >> beam.ParDo(_Group(self._group_of))
            | beam.CombinePerKey(SmallestDigests(max(self._export.group_sizes)))
            | "Requests" >> beam.MapTuple(_request)
            | "Test" >> RunInference(handler)
            | "Records" >> beam.MapTuple(_answer)
        )


class _Group(beam.DoFn):
    """(key, value) → (group, value)."""

    def __init__(self, group_of: Callable[[Any], Any]) -> None:
        self._group_of = group_of
        self._ungrouped = Metrics.counter(NAMESPACE, "ungrouped")

    def process(self, element: tuple[Any, Any]) -> Iterator[tuple[str, Any]]:
        key, value = element
        group = self._group_of(key)
        if group is None:
            self._ungrouped.inc()
        else:
            yield str(group), value


class _Decide(beam.DoFn):
    """All groups → each with the decision."""

    def __init__(self, fdr: float) -> None:
        self._fdr = fdr
        self._groups, self._alarms = (
            Metrics.counter(NAMESPACE, name) for name in ("groups", "groups_out_of_distribution")
        )

    def process(self, element: tuple[None, Iterable[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
        from tfbnood.calibration.conformal import benjamini_hochberg

        records = sorted(element[1], key=lambda record: record["group"])
        decisions = benjamini_hochberg(
            np.array([record["p_value"] for record in records]), self._fdr
        )
        for record, is_ood in zip(records, decisions.tolist(), strict=True):
            self._groups.inc()
            self._alarms.inc(is_ood)
            yield {**record, "is_ood": is_ood}


def _rank(record: Mapping[str, Any], calibration: Sequence[int]) -> Rank:
    """The number of its cluster's n calibration scores at or above an image's: `p = (1 + rank)/(n + 1)`."""
    cluster = record["cluster"] if len(calibration) > 1 else 0
    return cluster, round(record["p_value"] * (calibration[cluster] + 1)) - 1


def _test(
    group: str,
    counts: Mapping[Rank, int],
    *,
    calibration: Sequence[int],
    method: str | None,
    permutations: int,
    most_images: int,
) -> dict[str, Any]:
    from tfbnood.calibration.batch_tests import default_batch_test

    images = sum(counts.values())
    method = method or default_batch_test("image", images)
    p_value = group_p_value(
        counts, calibration, method, permutations=permutations, most_images=most_images
    )
    return _record(group, images, min(images, most_images), method, p_value)


def _request(group: str, found: tuple[int, Sequence[np.ndarray]]) -> tuple[Any, np.ndarray]:
    count, images = found
    return (group, count), np.stack(images)


def _answer(key: tuple[str, int], answer: Any) -> dict[str, Any]:
    # Invalid images do not contribute to the request's p-value.
    tested = int(answer.inference["valid"].sum())
    p_value = float(answer.inference["batch_p_value"][0])
    return _record(key[0], key[1], tested, SCORE_BATCH, p_value)


def _record(group: str, images: int, tested: int, method: str, p_value: float) -> dict[str, Any]:
    return {
        "group": group,
        "images": images,
        "tested": tested,
        "method": method,
        "p_value": p_value,
    }


def _check_method(method: Any) -> None:
    from tfbnood.calibration.batch_tests import BATCH_TESTS

    known = (*BATCH_TESTS, SCORE_BATCH)
    if method not in known:
        raise StatisticError(
            f"method must be one of {', '.join(known)}. Received: method={method!r}"
        )
