"""Tests of whole groups: one p-value each, in bounded memory, and Benjamini–Hochberg over them."""

import collections
import itertools

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from beam.collecting import Collect, run

from tfbnood.batch_tests import batch_p_value
from tfbnood.beam import GroupTest
from tfbnood.beam.counts import Counts, group_p_value
from tfbnood.beam.sample import SmallestDigests
from tfbnood.calibration.batch_tests import batch_p_value_within
from tfbnood.errors import DataError, StatisticError


@pytest.fixture(scope="module")
def null(pixel_detector):
    return pixel_detector.calibration.null_of_images(1)


@pytest.fixture(scope="module")
def records(pixel_detector, digits):
    """Records of `ScoreImages`: 3 cameras with 40, 25 and 5 images, the second one inverted."""
    images = np.concatenate([digits.test[:40], 255 - digits.test[40:65], digits.test[65:70]])
    result = pixel_detector.predict(images)
    cameras = np.repeat(["cam0", "cam1", "cam2"], [40, 25, 5])
    return [
        {"key": f"{camera}/{index}.png", "score": s, "p_value": float(np.float32(p)), "valid": True}
        for index, (camera, s, p) in enumerate(
            zip(cameras, result.score, result.p_value, strict=True)
        )
    ]


def groups(elements, transform):
    pipeline, collect = beam.Pipeline("FnApiRunner"), Collect()
    _ = pipeline | beam.Create(elements) | transform | collect
    metrics = run(pipeline)
    return {one["group"]: one for one in collect.found}, metrics


def test_a_group_has_the_p_value_of_its_scores(base, records, null):
    stray = {**records[0], "key": "elsewhere.png"}
    invalid = {**records[0], "valid": False, "p_value": 0.0}
    found, metrics = groups([*records, stray, invalid], GroupTest(base, key=r"(cam\d)/"))
    scores = {
        camera: np.array([one["score"] for one in records if camera in one["key"]])
        for camera in found
    }
    methods = {"cam0": "higher_criticism", "cam1": "higher_criticism", "cam2": "simes"}
    assert {group: one["method"] for group, one in found.items()} == methods
    for group, one in found.items():
        assert one["images"] == one["tested"] == len(scores[group])
        assert one["p_value"] == batch_p_value(scores[group], null, methods[group])
    assert {group for group, one in found.items() if one["is_ood"]} == {"cam1"}
    assert (metrics["groups"], metrics["groups_out_of_distribution"]) == (3, 1)
    assert metrics["ungrouped"] == 1


@pytest.mark.parametrize("method", ["higher_criticism", "simes", "fisher", "kolmogorov_smirnov"])
def test_counts_of_ranks_are_enough_for_every_test(method):
    random = np.random.RandomState(0)
    for shift, count in itertools.product([0, 0.5], [1, 10, 300]):
        calibration, scores = random.randn(99), random.randn(count) + shift
        ranks = (calibration >= scores[:, None]).sum(axis=1)
        counts = collections.Counter((0, rank) for rank in ranks.tolist())
        expected = batch_p_value(scores, calibration, method)
        assert group_p_value(counts, (99,), method) == expected
        clusters, nulls = np.arange(count) % 2, (calibration[:30], calibration[30:])
        ranks = [(nulls[c] >= s).sum() for c, s in zip(clusters, scores, strict=True)]
        counts = collections.Counter(zip(clusters.tolist(), ranks, strict=True))
        expected = batch_p_value_within(scores, clusters, nulls, method)
        assert group_p_value(counts, (30, 69), method) == expected


def test_within_clusters_a_group_has_the_p_value_of_test_batch(clustered, digits):
    detector, base = clustered
    images = {
        "usual": digits.test[:30],
        "twos": digits.test[digits.labels["test"] == 2][:20],
        "inverted": 255 - digits.test[:12],
    }
    elements = []
    for group, some in images.items():
        found = detector.predict(some)
        elements += [
            {"key": f"{group}/{row}", "p_value": float(p), "valid": True, "cluster": int(cluster)}
            for row, (p, cluster) in enumerate(zip(found.p_value, found.cluster, strict=True))
        ]
    found, _ = groups(elements, GroupTest(base, key=r"(\w+)/"))
    for group, some in images.items():
        assert found[group]["p_value"] == detector.test_batch(some).p_value


def test_a_large_group_is_tested_by_a_part_of_it():
    counts = dict.fromkeys([(0, rank) for rank in range(100)], 10**6)  # Uniform: in-distribution.
    p_value = group_p_value(counts, (99,), "higher_criticism", most_images=500)
    assert p_value > 0.05
    assert p_value == group_p_value(counts, (99,), "higher_criticism", most_images=500)
    counts[0, 0] = 10**8
    assert group_p_value(counts, (99,), "higher_criticism", most_images=500) == 0.001


def test_counts_do_not_depend_on_how_bundles_are_merged():
    combine = Counts()
    parts = [[3, 1, 3], [], [1]]
    accumulators = []
    for part in parts:
        accumulator = combine.create_accumulator()
        for rank in part:
            accumulator = combine.add_input(accumulator, rank)
        accumulators.append(accumulator)
    assert combine.extract_output(combine.merge_accumulators(accumulators)) == {3: 2, 1: 2}


def test_benjamini_hochberg_is_over_the_groups_of_a_window(base):
    # p = 0.01 is an alarm alone at 5 %, and not among ten groups.
    def record(group, p_value, hour):
        one = {"key": f"{group}/x.png", "p_value": p_value, "valid": True}
        return TimestampedValue(one, 3600 * hour)

    rank_of_least = 1 / 301
    elements = [record("night", rank_of_least, 0)]
    elements += [record("day", rank_of_least, 1), *(record(f"g{i}", 1.0, 1) for i in range(30))]
    pipeline, collect = beam.Pipeline("FnApiRunner"), Collect()
    _ = (
        pipeline
        | beam.Create(elements)
        | beam.Map(lambda one: one)
        | beam.WindowInto(FixedWindows(3600))
        | GroupTest(base, key=r"(\w+)/", fdr=0.02)
        | collect
    )
    run(pipeline)
    found = {one["group"]: one for one in collect.found}
    assert len(found) == 32
    assert found["night"]["p_value"] == found["day"]["p_value"] < 0.02
    assert [group for group, one in found.items() if one["is_ood"]] == ["night"]


def test_score_batch_asks_the_model_about_a_sample_of_each_group(base, digits):
    pairs = [(f"cam0/{index}", image) for index, image in enumerate(digits.test[:80])]
    pairs += [(f"cam1/{index}", 255 - image) for index, image in enumerate(digits.test[80:100])]
    test = GroupTest(base, key=lambda key: key.partition("/")[0], method="score_batch")
    found, _ = groups(pairs, test)
    combine = SmallestDigests(64)
    function = tf.saved_model.load(str(base / "1")).signatures["score_batch"]
    for group, count in (("cam0", 80), ("cam1", 20)):
        accumulator = combine.create_accumulator()
        for key, image in pairs:
            if group in key:
                accumulator = combine.add_input(accumulator, (key, image))
        _, images = combine.extract_output(accumulator)
        answer = function(images=tf.constant(np.stack(images), tf.float32))
        assert found[group]["images"] == count
        assert found[group]["tested"] == min(count, 64)
        assert found[group]["method"] == "score_batch"
        expected = answer["batch_p_value"][0].numpy()
        assert found[group]["p_value"] == pytest.approx(expected, rel=1e-5)


def test_a_sample_is_the_same_in_every_order_and_has_a_bound():
    combine = SmallestDigests(5)
    pairs = [(str(number), number) for number in range(100)]
    samples = []
    for seed, cuts in ((0, [0, 100]), (1, [0, 30, 31, 100]), (2, [0, 50, 50, 100])):
        order = np.random.RandomState(seed).permutation(100)
        accumulators = []
        for start, end in itertools.pairwise(cuts):
            accumulator = combine.create_accumulator()
            for index in order[start:end]:
                accumulator = combine.add_input(accumulator, pairs[index])
                assert len(accumulator[1]) <= 5
            accumulators.append(accumulator)
        samples.append(combine.extract_output(combine.merge_accumulators(accumulators)))
    assert samples[0] == samples[1] == samples[2]
    assert samples[0][0] == 100
    assert len(set(samples[0][1])) == 5


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"key": "cam"}, DataError, "in parentheses"),
        ({"key": "(cam"}, DataError, "regular expression"),
        ({"key": 3}, DataError, "regular expression"),
        ({"key": str, "fdr": 1}, DataError, "fdr must lie"),
        ({"key": str, "permutations": 0}, DataError, "permutations must"),
        ({"key": str, "method": "mean"}, StatisticError, "one of simes, .*score_batch"),
    ],
)
def test_bad_arguments_are_refused(options, error, match, base):
    with pytest.raises(error, match=match):
        GroupTest(base, **options)


def test_an_export_without_score_batch_cannot_be_asked_for_it(pixel_detector, tmp_path):
    pixel_detector.export(tmp_path / "small", fpr=0.05)
    with pytest.raises(StatisticError, match="export with held_out"):
        GroupTest(tmp_path / "small", key=str, method="score_batch")
