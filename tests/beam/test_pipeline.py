"""Whole runs: the command line's arguments, several worker processes, and one that is killed."""

import json
import re

import faults
import pytest

from tfbnood.beam import Summary, run_pipeline, score_pipeline
from tfbnood.errors import DataError, TfbnoodError

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


def test_the_arguments_of_a_command_line_run_a_pipeline(base, photos, damaged, tmp_path):
    arguments = [str(base), f"{photos}/**", f"{damaged}/*.png", "--runner=FnApiRunner"]
    arguments += [f"--out={tmp_path}/scores.jsonl", r"--group-by=(cam\d)", "--fdr=0.1"]
    summary = run_pipeline(arguments)
    assert (summary.images, summary.unreadable, summary.groups) == (90, 3, 3)  # notes.txt as well
    found, groups = records(tmp_path), records(tmp_path, "scores.groups")
    assert summary.out_of_distribution == sum(one["is_ood"] for one in found)
    assert [one["group"] for one in groups if one["is_ood"]] == ["cam2"]
    assert re.fullmatch(
        r"\d+ of 90 images out-of-distribution, 1 of 3 groups, 3 unreadable; see \S+", str(summary)
    )
    with pytest.raises(DataError, match="no results yet"):
        run_pipeline(arguments)


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
