"""Scores through Beam: the same as in process from every source, dead letters with reasons, files of results."""

import csv
import importlib.util
import json
import pathlib
import shutil

import apache_beam as beam
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem
from beam.collecting import Collect, run

from tfbnood.beam import ExportHandler, ReadImages, ScoreImages, WriteRecords
from tfbnood.beam.export import local_copy
from tfbnood.errors import DataError, SavedDetectorError, TfbnoodError

COLUMNS = ["key", "score", "p_value", "is_ood", "bits_per_dim", "valid"]


def score(base, images, pairs=None, **options):
    """Records, dead letters and metrics."""
    pipeline, scores, unreadable = beam.Pipeline("FnApiRunner"), Collect(), Collect()
    start = pipeline if pairs is None else pipeline | beam.Create(pairs, reshuffle=False)
    scored = start | ScoreImages(base, images, **options)
    _ = scored.scores | "Scores" >> scores
    _ = scored.unreadable | "Unreadable" >> unreadable
    metrics = run(pipeline)
    return {one["key"]: one for one in scores.found}, unreadable.found, metrics


def assert_same(records, in_process):
    assert records.keys() == in_process.keys()
    for key, (value, p_value, is_ood) in in_process.items():
        assert records[key]["score"] == pytest.approx(value, rel=1e-5)
        assert records[key]["p_value"] == pytest.approx(p_value, rel=1e-5)
        assert records[key]["is_ood"] is is_ood
        assert records[key]["valid"] is True


def jsonl(pattern):
    files = sorted(pattern.parent.glob(pattern.name))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def encoded(photos):
    """Every photo: path and bytes."""
    return [(str(path), path.read_bytes()) for path in sorted(photos.rglob("cam*/*"))]


def test_a_folder_has_the_scores_that_it_has_in_process(base, photos, in_process, tmp_path):
    output = tmp_path / "out" / "scores.jsonl"
    records, unreadable, metrics = score(base, photos, output=output)
    assert_same(records, in_process)
    assert unreadable == []
    alarms = sum(is_ood for *_, is_ood in in_process.values())
    assert (metrics["images"], metrics["out_of_distribution"]) == (90, alarms)
    # What lies on the disk is what went through.
    lines = jsonl(tmp_path / "out" / "scores-*-of-*.jsonl")
    assert [list(line) for line in lines] == [COLUMNS] * 90
    assert {line["key"]: line for line in lines} == records


def test_patterns_take_what_they_match_once(base, photos, in_process):
    patterns = [f"{photos}/cam0/*.png", f"{photos}/cam1", f"{photos}/cam1/*.jpg"]
    records, _, metrics = score(base, patterns)
    assert metrics["images"] == len(records)
    expected = {
        key: values
        for key, values in in_process.items()
        if "cam1" in key or ("cam0" in key and key.endswith(".png"))
    }
    assert_same(records, expected)


def test_tfrecords_have_the_same_scores(base, encoded, in_process, tmp_path):
    def example(**features):
        lists = {
            name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
            for name, value in features.items()
        }
        return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString()

    for part in range(2):
        options = "GZIP" if part else ""
        file = tmp_path / f"{part}.tfrecord{'.gz' if part else ''}"
        with tf.io.TFRecordWriter(str(file), options) as writer:
            for key, content in encoded[part::2]:
                writer.write(example(jpeg=content, path=key.encode()))
    read = ReadImages(f"{tmp_path}/*.tfrecord*", image="jpeg", key="path")
    assert_same(score(base, read)[0], in_process)
    # Without a key: file and place.
    file = tmp_path / "0.tfrecord"
    file.write_bytes(file.read_bytes()[:-100])
    records, unreadable, _ = score(base, ReadImages(file, image="jpeg"))
    keys = {f"{file}#{row}": key for row, (key, _) in enumerate(encoded[0:-2:2])}
    assert_same(
        {keys[key]: one for key, one in records.items()}, {k: in_process[k] for k in keys.values()}
    )
    (lost,) = unreadable
    assert lost["key"] == f"{file}#{len(keys)}"
    assert lost["reason"] == "damaged or truncated TFRecord; the rest of the file is lost"


@pytest.mark.parametrize("nested", [False, True])
def test_parquet_has_the_same_scores(nested, base, encoded, in_process, tmp_path):
    keys, contents = zip(*encoded, strict=True)
    images = [{"bytes": content, "path": None} for content in contents] if nested else contents
    table = pyarrow.table({"image": [*images, None], "path": [*keys, "lost"]})
    pyarrow.parquet.write_table(table, tmp_path / "photos.parquet", row_group_size=20)
    read = ReadImages(tmp_path / "photos.parquet", key="path")
    records, unreadable, _ = score(base, read)
    assert_same(records, in_process)
    assert unreadable == [{"key": "lost", "reason": "no bytes under 'image'"}]


def test_pairs_of_bytes_or_arrays_have_the_same_scores(base, encoded, in_process, digits):
    assert_same(score(base, None, encoded)[0], in_process)
    arrays = [("a", digits.test[0]), ("b", digits.test[0, :, :4])]
    records, unreadable, _ = score(base, None, arrays)
    first = min(in_process)
    assert records["a"]["score"] == pytest.approx(in_process[first][0], rel=1e-5)
    assert unreadable[0]["key"] == "b"
    assert "(8, 8, 1)" in unreadable[0]["reason"]


def test_what_is_no_image_comes_with_its_reason(base, photos, damaged, in_process, tmp_path):
    patterns = [f"{photos}/cam0", f"{damaged}/*", f"{tmp_path}/broken.png"]
    (tmp_path / "broken.png").symlink_to(photos / "cam0")  # A folder cannot be read.
    records, unreadable, metrics = score(base, patterns, output=tmp_path / "scores.jsonl")
    assert len(records) == 30
    reasons = {pathlib.Path(one["key"]).name: one["reason"] for one in unreadable}
    assert reasons.pop("broken.png") == "is a directory"
    assert reasons == {
        "truncated.png": "truncated",
        "text.jpg": "not an image of a known format",
        "empty.png": "empty",
        "array.webp": "not an image of a known format",
    }
    assert metrics["unreadable"] == len(unreadable) == 5
    written = jsonl(tmp_path / "scores.unreadable-*.jsonl")
    assert sorted(written, key=str) == sorted(unreadable, key=str)


def test_a_nearly_black_image_is_an_alarm_that_is_not_valid(base):
    image = np.zeros((8, 8, 1), np.uint8)
    image[0, 0] = 1
    content = tf.io.encode_png(image).numpy()
    records, _, metrics = score(base, None, [("night", content)])
    assert not records["night"]["valid"]
    assert records["night"]["is_ood"]
    assert records["night"]["p_value"] == 0
    assert metrics["invalid"] == 1


def test_parquet_csv_and_jsonl_hold_the_same(tmp_path):
    values = [1.5, float("nan"), float("inf")]
    rows = [
        {
            "key": f'{7 + row}, a "name"',
            "score": value,
            "p_value": 0.25,
            "is_ood": True,
            "bits_per_dim": 2.0,
            "valid": True,
        }
        for row, value in enumerate(values)
    ]
    with beam.Pipeline("FnApiRunner") as pipeline:
        records = pipeline | beam.Create(rows)
        _ = records | "JSONL" >> WriteRecords(tmp_path / "a.jsonl", shards=1)
        _ = records | "CSV" >> WriteRecords(tmp_path / "a.csv", shards=1)
        _ = records | "Parquet" >> WriteRecords(tmp_path / "a.parquet", shards=1)
    table = pyarrow.parquet.read_table(tmp_path / "a-00000-of-00001.parquet")
    assert table.column_names == COLUMNS
    written = sorted(table.to_pylist(), key=lambda row: row["key"])
    lines = sorted(jsonl(tmp_path / "a-00000-of-00001.jsonl"), key=lambda row: row["key"])
    assert [row["key"] for row in written] == [f'{row}, a "name"' for row in (7, 8, 9)]
    with open(tmp_path / "a-00000-of-00001.csv", newline="", encoding="utf-8") as file:
        cells = sorted(csv.DictReader(file), key=lambda row: row["key"])
    assert list(cells[0]) == COLUMNS
    assert [{name: str(value) for name, value in row.items()} for row in written] == cells
    assert np.array_equal([row["score"] for row in written], values, equal_nan=True)
    assert [line["score"] for line in lines] == [1.5, None, None]
    del written[0]["score"], lines[0]["score"]
    assert written[0] == lines[0]


def test_files_have_what_the_export_says_of_an_image_and_nothing_else(clustered, digits, tmp_path):
    detector, base = clustered
    images = np.concatenate([digits.test[:8], 255 - digits.test[:2]])
    for suffix in ("jsonl", "parquet"):
        score(base, None, list(enumerate(images)), output=tmp_path / f"scores.{suffix}")
    (file,) = tmp_path.glob("scores-*.parquet")
    table = pyarrow.parquet.read_table(file)
    expected = ["key", "score", "p_value", "is_ood", "valid", "is_ood_certified", "cluster"]
    assert table.column_names == expected
    written = sorted(table.to_pylist(), key=lambda row: int(row["key"]))
    lines = sorted(jsonl(tmp_path / "scores-*.jsonl"), key=lambda row: int(row["key"]))
    certified = detector.predict(images, fpr=0.1, confidence=0.9)
    for rows in (written, lines):
        assert [row["cluster"] for row in rows] == certified.cluster.tolist()
        assert [row["is_ood_certified"] for row in rows] == certified.is_ood.tolist()
        assert all(row.keys() == set(expected) for row in rows)


def test_results_are_not_mixed_with_those_of_another_run(base, tmp_path):
    (tmp_path / "scores-00000-of-00003.jsonl").write_text("{}")
    with pytest.raises(DataError, match="no results yet"):
        ScoreImages(base, "x.png", output=tmp_path / "scores.jsonl")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda base: ScoreImages(base, "a.png", output="scores.txt"),
            "must end in .jsonl, .csv or",
        ),
        (lambda base: ScoreImages(base, fit="squeeze"), "fit must"),
        (lambda base: ReadImages([]), "patterns must"),
        (lambda base: ReadImages(["a.parquet", "b.png"]), "one format"),
        (lambda base: ReadImages("a.png", format="zip"), "format must be one of files"),
        (lambda base: WriteRecords("a.jsonl", columns=["colour"]), "columns must"),
    ],
)
def test_bad_arguments_fail_before_a_pipeline_is_built(make, match, base):
    with pytest.raises(DataError, match=match):
        make(base)


class Elsewhere(LocalFileSystem):
    """`elsewhere://a/b` for `/a/b`: a filesystem that TensorFlow and Pillow know nothing of."""

    @classmethod
    def scheme(cls):
        return "elsewhere"

    def join(self, base, *parts):
        return "/".join([base.rstrip("/"), *parts])

    def split(self, path):
        head, _, tail = path.rpartition("/")
        return head, tail

    def match(self, patterns, limits=None):
        found = super().match([_here(pattern) for pattern in patterns], limits)
        for result in found:
            for file in result.metadata_list:
                file.path = f"elsewhere:/{file.path}"
        return found

    def open(self, path, *arguments, **options):
        return super().open(_here(path), *arguments, **options)

    def create(self, path, *arguments, **options):
        return super().create(_here(path), *arguments, **options)

    def mkdirs(self, path):
        return super().mkdirs(_here(path))

    def exists(self, path):
        return super().exists(_here(path))

    def rename(self, sources, targets):
        return super().rename([*map(_here, sources)], [*map(_here, targets)])

    def delete(self, paths):
        return super().delete([*map(_here, paths)])


def _here(path):
    return path.removeprefix("elsewhere:/")


def test_models_images_and_results_may_lie_behind_any_filesystem(
    base, photos, in_process, tmp_path
):
    output = f"elsewhere:/{tmp_path}/scores.parquet"
    records, _, _ = score(f"elsewhere:/{base}", f"elsewhere:/{photos}", output=output)
    assert_same({_here(key): record for key, record in records.items()}, in_process)
    (file,) = tmp_path.glob("scores-*")
    assert pyarrow.parquet.read_table(file).num_rows == 90


def test_a_model_that_was_copied_in_part_is_refused(two_versions, tmp_path):
    shutil.copytree(two_versions / "9", tmp_path / "1")
    variables = next((tmp_path / "1" / "variables").glob("*.data*"))
    variables.write_bytes(variables.read_bytes()[:-1])
    with pytest.raises(SavedDetectorError, match="missing or has changed"):
        ExportHandler(f"elsewhere:/{tmp_path}").load_model()
    (tmp_path / "1" / "assets.extra" / "detector.json").write_text("{")
    with pytest.raises(SavedDetectorError, match=r"without an intact assets\.extra/detector\.json"):
        ExportHandler(f"elsewhere:/{tmp_path}").load_model()


def test_files_of_a_model_are_not_copied_to_other_places(two_versions, monkeypatch):
    version = f"elsewhere:/{two_versions}/9"
    outside = [FileMetadata(f"{version}/../../stray", 5)]
    monkeypatch.setattr("tfbnood.beam.export.matching", lambda pattern: outside)
    with (
        pytest.raises(
            SavedDetectorError,
            match=r"must not have files outside its folder\. Received: .*/9/\.\./\.\./stray",
        ),
        local_copy(version),
    ):
        pass


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda base: ScoreImages("nowhere://bucket/model"), "local or begin with .*s3://"),
        (lambda base: ScoreImages("s3://bucket/model"), r'pip install "apache-beam\[aws\]"'),
        (lambda base: ScoreImages(base, "s3://bucket/**.jpg"), r"apache-beam\[aws\]"),
        (lambda base: ReadImages(["a.png", "gs://bucket/*.png"]), r"apache-beam\[gcp\]"),
        (lambda base: WriteRecords("gs://bucket/scores.jsonl"), r"apache-beam\[gcp\]"),
    ],
)
def test_a_filesystem_that_is_not_installed_is_one_sentence_with_its_extra(
    make, match, base, monkeypatch
):
    find_spec = importlib.util.find_spec
    absent = {"boto3", "google.cloud.storage"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else find_spec(name)
    )
    with pytest.raises(TfbnoodError, match=match) as caught:
        make(base)
    assert len(str(caught.value).splitlines()) == 1
