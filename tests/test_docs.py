"""The pages under docs/: what they show can be typed in, and the site is built without a warning."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from pages import ROOT, blocks, free_port, typed_lines, wait_for, write_pictures

from tfbnood._core.presets import PRESETS, Preset, RealNVPConfig
from tfbnood.cli import parser as cli
from tfbnood.models import base
from tfbnood.tuning import trials as tuning_trials

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
IN_PYTHON = [page for page in PAGES if blocks(page, "python")]
IN_SHELL = [page for page in PAGES if blocks(page, "sh")]
# What makes the shell's lines quick; everything else is typed as it stands.
SMALLER = {
    "fashion_mnist": "digits",
    "--model vae": "--model realnvp",
    "cpu-grey": "tiny",
    "--steps 3000": "--steps 20",
    "mnist kmnist omniglot rotation": "inverted rotation",
    "--trials 20": "--trials 1 --epochs 1",
}


@pytest.fixture
def small_network(monkeypatch):
    # Most of the time goes into tracing, and that is in a network's layers.
    small = Preset((8, 8, 1), RealNVPConfig(channels=4, blocks=1, scales=1))
    for module, name in ((base, "preset"), (tuning_trials, "named_preset")):
        monkeypatch.setattr(module, name, lambda family, name: PRESETS[family][name] and small)


@pytest.mark.parametrize("page", IN_PYTHON)
def test_python_blocks_of_a_page_run_one_after_another(page, tmp_path, monkeypatch, small_network):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks(page, "python"):
        exec(compile(code, page, "exec"), names)


@pytest.mark.parametrize("page", IN_SHELL)
def test_every_command_is_one_that_exists(page):
    for block in blocks(page, "sh"):
        for command, *arguments in typed_lines(block):
            if command == "tfbnood":
                assert callable(cli.make_parser().parse_args(arguments).run)
            elif "/" in command:
                assert (ROOT / command).is_file(), command
            else:
                assert command in ("pip", "curl", "find", "my_scorer"), command


def test_shell_lines_go_from_a_training_to_a_served_answer(
    tmp_path, monkeypatch, small_network, capsys, digits
):
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "my_images", digits.test[:3])
    shutil.copy(tmp_path / "my_images" / "0.png", tmp_path / "image.png")
    port = str(free_port())

    def smaller(page):
        text = "".join(blocks(f"docs/{page}.md", "sh"))
        for old, new in {**SMALLER, "8501": port}.items():
            text = text.replace(old, new)
        return typed_lines(text)

    for command, *arguments in [*smaller("train"), *smaller("tune")]:
        assert command == "tfbnood"
        assert cli.main(arguments) == 0, arguments
    assert "tfbnood calibrate tuned/fm/best --out DETECTOR" in capsys.readouterr().out

    export, serve, curl, score = smaller("serve")
    assert cli.main(export[1:]) == 0
    command = [sys.executable, "-m", "tfbnood", *serve[1:], "--stand-in", "--port", port]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/v1/models/fm", server)
            if shutil.which("curl"):
                line = " ".join(shlex.quote(word) for word in curl[:-1])
                body = next(
                    line for line in blocks("docs/serve.md", "sh")[0].splitlines() if "curl" in line
                )
                assert "base64 -w0 image.png" in body
                answer = subprocess.run(
                    ["bash", "-c", body.replace("8501", port)], capture_output=True, check=True
                )
                assert b'"bits_per_dim"' in answer.stdout, line
            assert cli.main(score[1:]) == 0
        finally:
            server.terminate()
    assert "of 3 images out-of-distribution by fm at" in capsys.readouterr().out


def test_what_is_made_smaller_is_there_as_written():
    text = "\n".join(
        block for page in ("train", "tune") for block in blocks(f"docs/{page}.md", "sh")
    )
    assert [written for written in SMALLER if written not in text] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; strict, so that a broken link or a name that is not there fails."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_asks_no_other_server_for_anything(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', text)
        assert fetched == [], page
    assert (site / "search" / "search_index.js").is_file()


def test_every_page_is_in_the_navigation(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.removeprefix("docs/").replace(".md", ".html") in home, page


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/statistics.md"])
def test_sentences_are_short(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|^\|.*?$|^#.*?$|<!--.*?-->|^:::.*?$", "", text, flags=re.M | re.S)
    sentences = [
        one.split() for one in re.split(r"(?<=[.!?:])\s+|\n\s*\n|^\s*[-:] ", text, flags=re.M)
    ]
    lengths = [len(words) for words in sentences if len(words) > 2]
    assert sum(lengths) / max(1, len(lengths)) < 20


def test_every_test_that_the_reliability_page_names_is_there():
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reliability.md").read_text("utf-8"))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.M)
    }
    assert named
    assert [name for name in named if name not in there] == []
