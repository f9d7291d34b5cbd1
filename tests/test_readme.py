"""What README.md shows can be typed in as it stands."""

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

from tfbnood import cli
from tfbnood.models import base
from tfbnood.models.presets import PRESETS, Preset, RealNVPConfig

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def shell_lines() -> list[list[str]]:
    return [
        shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()
    ]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, monkeypatch):
    # A smaller network: most of the time goes into tracing, and that is in its layers.
    small = Preset((8, 8, 1), RealNVPConfig(channels=4, blocks=1, scales=1))
    monkeypatch.setattr(base, "preset", lambda family, name: PRESETS[family][name] and small)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    # What the comments claim.
    assert names["x"].train.dtype == "uint8"
    for field in ("score", "p_value", "is_ood", "bits_per_dim"):
        assert getattr(names["result"], field).shape == (64,)
    assert "of 64 images out-of-distribution by ensemble" in str(names["result"])


def test_result_tables_are_those_of_the_result_files():
    tool = runpy.run_path(str(ROOT / "tools" / "update_readme.py"))
    for path, text in tool["texts"]().items():
        assert f"{tool['BEGIN']}\n\n{text}\n\n{tool['END']}" in path.read_text()


def test_every_command_is_one_that_exists():
    lines = shell_lines()
    assert [line[0] for line in lines if line].count("tfbnood") >= 4
    for line in lines:
        if line and line[0] == "tfbnood" and "--help" not in line:
            arguments = cli._parser().parse_args(line[1:])
            assert callable(arguments.run)
        elif line and line[0] == "tfbnood":
            with pytest.raises(SystemExit) as exit_:
                cli.main(line[1:])
            assert exit_.value.code == 0
        elif line and line[0] == "curl":
            body = json.loads(line[-1].replace("$(base64 -w0 image.png)", "iVBORw0KGgo="))
            assert set(body) == {"signature_name", "instances"}
            assert line[1].endswith("/v1/models/fm:predict")
        elif line:
            assert (Path(__file__).resolve().parents[1] / line[0]).is_file()
