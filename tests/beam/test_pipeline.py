"""Whole runs: several worker processes, and one that is killed."""

import json
import os

import faults
import numpy as np
import pytest
from PIL import Image

from tfbnood.beam import Summary, score_pipeline
from tfbnood.errors import TfbnoodError

# The worker that gets to the seventh record first dies there, with some of its records in a temporary shard.
KILLED = """
import os, pathlib, signal, sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from beam.retrying import retried_bundles
from tfbnood.beam import ScoreImages, WriteRecords

base, photos, out = sys.argv[1:]

class DieOnce(beam.DoFn):
    def start_bundle(self):
        self.seen = 0

    def process(self, record):
        self.seen += 1
        marker = pathlib.Path(out, "killed")
        if self.seen == 7:
            try:
                marker.open("x").close()
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        yield record

if __name__ == "__main__":
    options = PipelineOptions(
        ["--runner=FnApiRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    )
    with retried_bundles() as lost:
        pipeline = beam.Pipeline(options=options)
        scored = pipeline | ScoreImages(base, photos, batch_size=4)
        _ = scored.scores | beam.ParDo(DieOnce()) | WriteRecords(f"{out}/scores.jsonl")
        pipeline.run().wait_until_finish()
    print("lost", len(lost))
"""


GROWTH = """
import resource, sys
from tfbnood.beam import score_pipeline

base, folder, out = sys.argv[1:]
peaks = []
for part in ("few", "many"):
    summary = score_pipeline(
        base, f"{folder}/{part}", output=f"{out}/{part}.jsonl", options=["--runner=FnApiRunner"]
    )
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(summary.images, peaks[1] - peaks[0])
"""


def records(folder, name="scores"):
    files = sorted(folder.glob(f"{name}-*-of-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def test_a_killed_worker_s_bundle_is_run_again_and_gives_each_key_once(
    base, photos, in_process, tmp_path
):
    done = faults.run_python(KILLED, base, photos, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "killed").exists()
    assert "lost 1" in done.stdout
    found = records(tmp_path)
    assert len(found) == len({one["key"] for one in found}) == len(in_process)
    for one in found:
        score, p_value, is_ood = in_process[one["key"]]
        assert one["score"] == pytest.approx(score, rel=1e-5)
        assert one["p_value"] == pytest.approx(p_value, rel=1e-5)
        assert one["is_ood"] is is_ood


def test_memory_does_not_grow_with_the_number_of_images(base, tmp_path):
    """2,000 files are 131 MB; only their paths may be held."""
    photo = tmp_path / "photo.png"
    noise = np.random.RandomState(0).randint(0, 256, (256, 256), np.uint8)
    Image.fromarray(noise).save(photo, compress_level=0)
    for part, count in (("few", 200), ("many", 2000)):
        (tmp_path / part).mkdir()
        for index in range(count):
            os.link(photo, tmp_path / part / f"{index}.png")
    (tmp_path / "out").mkdir()
    done = faults.run_python(
        GROWTH, base, tmp_path, tmp_path / "out", env={"MALLOC_ARENA_MAX": "2"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    images, growth = done.stdout.split()
    assert images == "2000"
    assert float(growth) < 40


def test_groups_may_be_tested_by_the_model(base, photos, tmp_path):
    summary = score_pipeline(
        base,
        photos,
        output=tmp_path / "scores.parquet",
        group_by=r"(cam\d)",
        group_method="score_batch",
        options=["--runner=FnApiRunner"],
    )
    assert (summary.images, summary.groups) == (90, 3)


def test_a_pipeline_that_fails_is_one_sentence_and_leaves_no_results(base, tmp_path):
    with pytest.raises(TfbnoodError, match=r"the pipeline failed: .*mpty match") as caught:
        score_pipeline(
            base,
            f"{tmp_path}/*.png",
            output=tmp_path / "scores.jsonl",
            options=["--runner=FnApiRunner"],
        )
    assert len(str(caught.value).splitlines()) == 1
    assert records(tmp_path) == []


def test_a_runner_without_metrics_has_a_summary_all_the_same():
    assert str(Summary("gs://b/scores.jsonl")) == "scores are written to gs://b/scores.jsonl"
