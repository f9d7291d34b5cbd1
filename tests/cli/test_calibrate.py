"""`tfbnood calibrate`, as typed; the fixture `folder` makes a detector with it."""

import json


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
