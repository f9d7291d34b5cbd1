"""`tfbnood evaluate`, as typed: tables on named data sets, and statistics with settings."""

import json


def test_tables_are_printed_and_saved(folder, run, tmp_path):
    words = ["--inliers", "digits", "--outliers", "inverted", "rotation", "photos", "--n", "100"]
    more = ["--contamination", "1", "0.2", "--statistics", "log_prob", "pixel_pca"]
    code, out, _ = run(
        "evaluate", folder / "detector", *words, *more, "--out", tmp_path / "results"
    )
    assert code == 0
    assert "pixel_pca" in out
    saved = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert saved[0]["provenance"]["detector"]["runs"][0]["preset"] == "tiny"
    rows = {(r["set"], r["statistic"], r["contamination"]) for r in saved[0]["rows"]}
    assert len(rows) == 3 * 2 * 2
    code, out, _ = run("evaluate", folder / "detector", *words, "--json")
    assert {row["statistic"] for row in json.loads(out)["rows"]} == {"pixel_pca"}


def test_a_statistic_may_be_given_with_settings(folder, run):
    words = ["--inliers", "digits", "--outliers", "inverted", "--n", "50", "--json", "--statistics"]
    settings = ['pixel_pca:{"components": 3}', 'pixel_pca:{"components": 4}']
    _, out, _ = run("evaluate", folder / "detector", *words, *settings)
    configs = [about["config"]["components"] for about in json.loads(out)["statistics"].values()]
    assert configs == [3, 4]


def test_settings_that_a_statistic_does_not_take_are_one_line(folder, run):
    words = ["--inliers", "digits", "--outliers", "inverted"]
    code, out, err = run(
        "evaluate", folder / "detector", *words, "--statistics", 'pixel_pca:{"knots": 3}'
    )
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("tfbnood: pixel_pca does not take these settings")
