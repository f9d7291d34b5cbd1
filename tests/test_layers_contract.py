"""The layers of pyproject.toml hold, and the contract finds an import that points up."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINT = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]


def lint(folder: Path) -> subprocess.CompletedProcess:
    command = [*LINT, "--no-logo", "--no-cache"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(ROOT / "tfbnood", tmp_path / "tfbnood", ignore=lambda *_: ["__pycache__"])
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_no_import_points_up():
    found = lint(ROOT)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        ("metrics.py", "from tfbnood.detector import Detector", "tfbnood.metrics -> "),
        ("models/noise.py", "import tfbnood.data.pools", "tfbnood.models.noise -> "),
        ("_core/files.py", "def late():\n    import tfbnood.cli", "tfbnood._core.files -> "),
        ("no_place_yet.py", "", "no_place_yet"),
    ],
    ids=["up", "aside", "up, inside a function", "a module without a place"],
)
def test_the_contract_finds(copied, path, line, said):
    with (copied / "tfbnood" / path).open("a") as file:
        file.write(f"\n{line}\n")
    found = lint(copied)
    assert found.returncode == 1
    assert said in found.stdout


def test_imports_for_types_alone_are_free(copied):
    line = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tfbnood.cli\n"
    before = lint(copied).stdout
    with (copied / "tfbnood" / "metrics.py").open("a") as file:
        file.write(f"\n{line}")
    assert "tfbnood.metrics" not in before + lint(copied).stdout
