"""`tfbnood score --runner`: whole runs as typed, Beam's options after --, and refusals before TensorFlow."""

import csv
import json
import shutil

import faults
import pytest

import tfbnood.beam
from tfbnood.cli import main


@pytest.fixture
def tfbnood_score(capsys):
    """Runs the command; returns its exit code, standard output and standard error."""

    def run(*words):
        capsys.readouterr()
        code = main(["score", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def table(folder, pattern):
    (file,) = folder.glob(pattern)
    return list(csv.DictReader(file.read_text("utf-8").splitlines()))


def test_a_folder_is_scored_with_groups_dead_letters_and_counters(
    base, photos, in_process, damaged, tmp_path, tfbnood_score
):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    (folder / "text.jpg").write_bytes((damaged / "text.jpg").read_bytes())
    line = [base, f"{folder}/**", "--out", tmp_path / "scores.csv", "--runner", "FnApiRunner"]
    line += ["--group-by", r"(cam\d)", "--fdr", "0.1"]
    code, out, err = tfbnood_score(*line)
    assert (code, err) == (0, "")
    rows = table(tmp_path, "scores-*.csv")
    assert len(rows) == 90
    for row in rows:
        name = row["key"].replace(str(folder), str(photos))
        score, p_value, is_ood = in_process[name]
        assert float(row["score"]) == pytest.approx(score, rel=1e-5)
        assert float(row["p_value"]) == pytest.approx(p_value, rel=1e-5)
        assert row["is_ood"] == str(is_ood)
    alarms = sum(row["is_ood"] == "True" for row in rows)
    counters = dict(line.split() for line in out.splitlines()[1:])
    assert counters == {
        "images": "90",
        "out_of_distribution": str(alarms),
        "invalid": "0",
        "unreadable": "2",  # and notes.txt
        "groups": "3",
        "groups_out_of_distribution": "1",
    }
    lost = table(tmp_path, "scores.unreadable-*.csv")
    assert sorted(row["key"].rpartition("/")[2] for row in lost) == ["notes.txt", "text.jpg"]
    groups = {row["group"]: row["is_ood"] for row in table(tmp_path, "scores.groups-*.csv")}
    assert groups == {"cam0": "False", "cam1": "False", "cam2": "True"}
    code, _, err = tfbnood_score(*line)
    assert code == 2
    assert "no results yet" in err


def test_what_follows_two_dashes_is_beam_s(base, tmp_path, tfbnood_score, monkeypatch):
    given = {}

    def score_pipeline(model_base, images, **options):
        given.update(options, model_base=model_base)
        return tfbnood.beam.Summary("gs://bucket/scores.jsonl", 5, 1, 0, 0)

    monkeypatch.setattr(tfbnood.beam, "score_pipeline", score_pipeline)
    line = ["digits_realnvp", "x/*.png", "--out", tmp_path / "scores.jsonl", "--json"]
    line += ["--runner=FlinkRunner", "--no-wait", "--", "--flink_master=host:8081", "--streaming"]
    code, out, _ = tfbnood_score(*line)
    assert code == 0
    assert given["options"] == ["--runner=FlinkRunner", "--flink_master=host:8081", "--streaming"]
    assert given["model_base"].endswith("savedmodels/digits_realnvp")
    assert given["wait"] is False
    assert json.loads(out)["images"] == 5


REFUSED = {
    "a b --runner SparkRuner --out s.csv": "did you mean SparkRunner?",
    "a b --runner SparkRunner": "--out must end in .jsonl, .csv, .parquet with --runner",
    "a b --runner SparkRunner --out s.html": "--out must end in .jsonl, .csv, .parquet with",
    "a b --runner SparkRunner --out s.csv --fpr 0.1": "--fpr cannot be combined with --runner: the",
    "a b --runner SparkRunner --out s.csv --fdr 0.1": "--fdr without --group-by cannot be",
    "a b --runner SparkRunner --out s.csv --url http://h:1": "--url cannot be combined with --runner",
    "a b --runner SparkRunner --out s.csv -- --runner=Flink": "must be given once, before --",
    "a b --group-by (x)": "--group-by needs --runner. Received: no --runner",
    "a b --out s.jsonl": "--out s.jsonl needs --runner",
    "a b --out gs://bucket/s.csv": "--out gs://bucket/s.csv needs --runner",
    "a b -- --streaming": "unknown argument",
    "nowhere b --runner DirectRunner --out s.csv": "model_base must be a folder with exported",
    "digits_realnvp ftp://h/* --runner DirectRunner --out s.csv": "paths must be local or begin",
    "digits_realnvp b.png --runner DirectRunner --out s.csv --group-by cam": "in parentheses",
}
RUN = """
import contextlib, io, json, sys
from tfbnood.cli import main
if sys.argv[2]:
    sys.modules[sys.argv[2]] = None
for line in json.loads(sys.argv[1]):
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        assert main(["score", *line.split()]) == 2
    print(json.dumps([text.getvalue(), "tensorflow" in sys.modules]))
"""


def errors(lines, tmp_path, without=""):
    done = faults.run_python(RUN, json.dumps(list(lines)), without, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_bad_lines_are_refused_in_one_line_before_tensorflow(tmp_path):
    for (text, has_tensorflow), words in zip(
        errors(REFUSED, tmp_path), REFUSED.values(), strict=True
    ):
        assert words in text
        assert len(text.splitlines()) == 1, text
        assert not has_tensorflow


def test_without_beam_one_line_names_the_extra(tmp_path):
    line = "digits_realnvp b --runner DirectRunner --out s.csv"
    ((text, has_tensorflow),) = errors([line], tmp_path, without="apache_beam")
    assert 'pip install "tfbnood[beam]"' in text
    assert len(text.splitlines()) == 1
    assert not has_tensorflow
