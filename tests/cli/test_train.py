"""`tfbnood train`, as typed."""

import re

import pytest

from tfbnood._core.presets import PRESETS
from tfbnood.cli import main
from tfbnood.cli.parser import make_parser
from tfbnood.models.registry import MODELS

LINE = "train --data digits --model vae --preset tiny --steps 1 --batch-size 8 --out"
TRAIN = LINE.split()


def test_help_lists_the_options(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    words = "--data --model --preset --steps --out --batch-size --seed --learning-rate"
    more = "--jit --no-jit --checkpoint-every --data-dir"
    assert [option for option in f"{words} {more}".split() if option not in text] == []
    assert [name for name in MODELS if name not in text] == []


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
