"""`tfbnood reproduce`: stages that resume, the rival drift test, and the whole run at its smallest scale."""

import json

import numpy as np
import pytest

from tfbnood.cli import main
from tfbnood.data import load
from tfbnood.errors import TfbnoodError
from tfbnood.reproduce.beyond import EVERYTHING, SCALES, Study, beyond
from tfbnood.reproduce.mmd import mmd, mmd_p_value
from tfbnood.reproduce.stages import Stages


def test_a_finished_stage_is_not_run_again(tmp_path, capsys):
    calls = []

    def work():
        calls.append(1)
        return {"value": len(calls)}

    for _ in range(2):
        stages = Stages(tmp_path, {"n": 3}, total=2)
        assert stages.run("one", work) == {"value": 1}
    assert len(calls) == 1
    assert "[1/2] one took" in capsys.readouterr().err


def test_a_stage_that_fails_leaves_the_finished_ones(tmp_path):
    def fail():
        raise KeyboardInterrupt

    stages = Stages(tmp_path, {}, total=2)
    stages.run("one", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        stages.run("two", fail)
    (tmp_path / "stages" / ".partial-1-two.json").write_text("{")  # as a kill would leave
    again = Stages(tmp_path, {}, total=2)
    assert again.run("one", fail) == 1
    assert again.run("two", lambda: 2) == 2


def test_other_settings_need_another_folder(tmp_path):
    Stages(tmp_path, {"n": 3}, total=1)
    with pytest.raises(TfbnoodError, match="out must be a new folder"):
        Stages(tmp_path, {"n": 4}, total=1)


def test_mmd_is_uniform_under_the_null_and_finds_a_shift():
    digits = load("digits")
    random = np.random.RandomState(0)

    def p_value(batch):
        return mmd_p_value(batch, digits.train[:150], permutations=49)

    fresh = [p_value(digits.test[random.permutation(397)[:32]]) for _ in range(40)]
    assert np.mean(np.array(fresh) <= 0.2) < 0.45
    assert p_value(255 - digits.test[:32]) == 1 / 50


def test_mmd_is_the_mean_of_kernels():
    random = np.random.RandomState(0)
    kernel = random.uniform(size=(7, 7))
    kernel = kernel + kernel.T
    np.fill_diagonal(kernel, 0)
    is_test = np.array([1, 1, 1, 0, 0, 0, 0], bool)
    within = np.mean([kernel[i, j] for i in range(3) for j in range(3) if i != j])
    others = np.mean([kernel[i, j] for i in range(3, 7) for j in range(3, 7) if i != j])
    between = kernel[:3, 3:].mean()
    found = mmd(kernel, np.stack([is_test, ~is_test]))
    np.testing.assert_allclose(found, within + others - 2 * between)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A run of one study on digits, smaller than any scale of the command."""
    study = Study("digits", ("inverted",), "vae", "tiny", 30, EVERYTHING)
    out = tmp_path_factory.mktemp("beyond")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "tiny", (study,))
        results = beyond(out, scale="tiny", n=60, batches=3)
    return out, results


def test_beyond_writes_json_markdown_and_a_picture(tiny):
    out, results = tiny
    assert json.loads((out / "beyond.json").read_text()) == json.loads(json.dumps(results))
    text = (out / "beyond.md").read_text()
    for heading in ("Mixing moments instead of samples", "digits_vae: AUROC", "whole batches"):
        assert heading in text
    assert (out / "beyond.png").read_bytes().startswith(b"\x89PNG")
    study = results["studies"]["digits_vae"]
    assert study["speed"]["ratio"] > 1
    assert set(study["mmd"]["MMD on pixels"]) == {"fresh", "inverted"}
    assert "| MMD on pixels |" in text
    assert {row["contamination"] for row in study["statistics"]["rows"]} == {1.0, 0.2, 0.05}


def test_beyond_goes_on_with_what_is_there(tiny, capsys, monkeypatch):
    out, results = tiny
    study = Study("digits", ("inverted",), "vae", "tiny", 30, EVERYTHING)
    monkeypatch.setitem(SCALES, "tiny", (study,))
    assert beyond(out, scale="tiny", n=60, batches=3)["studies"] == results["studies"]
    assert "…" not in capsys.readouterr().err  # nothing was started


def test_a_training_with_other_settings_is_not_taken_for_it(tiny, tmp_path, monkeypatch):
    out, _ = tiny
    study = Study("digits", ("inverted",), "vae", "tiny", 31, EVERYTHING)
    monkeypatch.setitem(SCALES, "tiny", (study,))
    with pytest.raises(TfbnoodError, match=r"must be a training with .*another steps"):
        beyond(tmp_path, scale="tiny", n=60, batches=3, runs=out / "runs")


def test_unknown_scales_and_studies_are_one_line(tmp_path, capsys):
    with pytest.raises(TfbnoodError, match="scale must be one of tiny, cpu, paper"):
        beyond(tmp_path, scale="huge")
    assert main(["reproduce", "beyond", "--out", str(tmp_path), "--only", "mnist_vae"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tfbnood: only must be one of fashion_mnist_realnvp")
    assert error.count("\n") == 1
