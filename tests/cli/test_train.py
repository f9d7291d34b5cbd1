"""`tfbnood train`, as typed."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tfbnood._core.presets import PRESETS
from tfbnood.cli import main
from tfbnood.cli.parser import make_parser
from tfbnood.models.registry import MODELS
from tfbnood.training.distributed import STRATEGIES

LINE = "train --data digits --model vae --preset tiny --steps 1 --batch-size 8 --out"
TRAIN = LINE.split()


def test_help_lists_the_options(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    words = "--data --model --preset --steps --out --batch-size --seed --learning-rate"
    more = "--jit --no-jit --checkpoint-every --data-dir --any-size --strategy --replicas --sync-moments"
    assert [option for option in f"{words} {more}".split() if option not in text] == []
    assert [name for name in MODELS if name not in text] == []


def test_the_strategies_are_those_of_the_module():
    # Written out in cli/train.py, so that --help need not import TensorFlow.
    parser = make_parser()._subparsers._group_actions[0].choices["train"]
    choices = {action.dest: action.choices for action in parser._actions}
    assert choices["strategy"] == STRATEGIES


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "strategy multiworker needs the environment variable TF_CONFIG in every process"),
        ('{"cluster": {"worker": ["one"]}}', "TF_CONFIG must have addresses host:port in cluster"),
    ],
)
def test_a_wrong_tf_config_is_one_line_before_tensorflow_is_imported(config, message, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    code = (
        "import sys; from tfbnood.cli import main; code = main(sys.argv[1:]); "
        "assert 'tensorflow' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *TRAIN, str(tmp_path / "run"), "--strategy", "multiworker"],
        capture_output=True,
        text=True,
        env=environment if config is None else {**environment, "TF_CONFIG": config},
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tfbnood: {message}")
    assert '"task": {"type": "worker", "index": 0}}' in line
    assert not (tmp_path / "run").exists()


def test_every_model_has_presets():
    assert set(PRESETS) == set(MODELS)


@pytest.mark.parametrize("model", PRESETS)
def test_every_model_and_preset_is_a_choice(model):
    for preset in PRESETS[model]:
        arguments = make_parser().parse_args([*TRAIN, "x", "--model", model, "--preset", preset])
        assert (arguments.model, arguments.preset) == (model, preset)


def test_it_reports_what_it_made_and_nothing_else(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*TRAIN, "run"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "trained vae: run/model.keras, run/run.json\n"
    (line,) = captured.err.splitlines()
    assert re.fullmatch(r"step 1/1: \d+\.\d+ bits/dim, \d+\.\d+ s/step, 00:00 left", line)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def large(folder, side):
    images = np.random.default_rng(0).integers(0, 256, (20, side, side, 1), dtype=np.uint8)
    np.savez(folder / "large.npz", images=images)
    return [*TRAIN, "run", "--data", "large", "--data-dir", str(folder)]


def test_images_too_large_for_the_preset_are_one_line_of_warning(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*large(tmp_path, 36))
    assert (code, out) == (0, "trained vae: run/model.keras, run/run.json\n")
    warning, step = err.splitlines()
    assert re.fullmatch(
        r"tfbnood: warning: --data should keep to the 28×28 pixels that the preset tiny is meant for: .* 1\.7 times as "
        r"long; resize the images to 28×28, or use a network, .* Received: 36×36 pixels",
        warning,
    )
    assert step.startswith("step 1/1")
    # Done already, and in silence.
    assert run(*large(tmp_path, 36), "--any-size") == (0, out, "")


def test_any_size_trains_what_is_refused_without_it(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = large(tmp_path, 60)
    code, out, err = run(*line)
    assert (code, out) == (2, "")
    (refusal,) = err.splitlines()
    assert re.fullmatch(
        r"tfbnood: --data must .* or pass --any-size\. Received: 60×60 pixels", refusal
    )
    assert not (tmp_path / "run").exists()
    code, _, err = run(*line, "--any-size")
    assert code == 0
    assert [text.split(":")[0] for text in err.splitlines()] == ["step 1/1"]
