"""`tfbnood calibrate`, as typed; the fixture `folder` makes a detector with it."""

import json

from tfbnood.detector import Detector
from tfbnood.export.read import ExportedDetector


def test_the_detector_says_what_it_was_made_of(folder):
    about = json.loads((folder / "detector" / "detector.json").read_text())["about"]
    assert about["calibration_images"] == 200
    (run,) = about["runs"]
    assert (run["data"], run["model"], run["preset"], run["steps"]) == ("digits", "vae", "tiny", 1)
    assert str(folder) not in json.dumps(about)


def test_a_statistic_of_several_models_refuses_one_run(folder, run):
    code, out, err = run("calibrate", folder / "run", "--statistic", "waic", "--out", folder / "x")
    assert (code, out) == (2, "")
    assert "list of at least two" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (folder / "x").exists()


def test_clusters_and_a_certificate_reach_the_served_answers(folder, run, tmp_path, digits):
    line = ("calibrate", folder / "run", "--statistic", "pixel_pca", "--clusters", 3)
    assert run(*line, "--out", tmp_path / "detector")[0] == 0
    base = tmp_path / "served"
    line = ("export", tmp_path / "detector", "--out", base, "--fpr", 0.1, "--confidence", 0.9)
    assert run(*line)[0] == 0
    found = ExportedDetector(base / "1").predict(digits.test)
    expected = Detector.load(tmp_path / "detector").predict(digits.test, fpr=0.1, confidence=0.9)
    assert (found["cluster"] == expected.cluster).all()
    assert (found["is_ood_certified"] == expected.is_ood).all()
    assert set(expected.cluster) == {0, 1, 2}


def test_a_single_cluster_is_refused_at_once(folder, run, tmp_path):
    line = ("calibrate", folder / "run", "--clusters", 1, "--out", tmp_path / "detector")
    code, _, err = run(*line)
    assert code == 2
    assert "--clusters must be at least 2. Received: 1" in err
