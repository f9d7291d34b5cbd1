"""What holds for the package as a whole: quick to import, typed, documented, one version."""

import configparser
import importlib.metadata
import importlib.resources
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import tfbnood

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("tensorflow", "keras", "tf_keras", "tensorflow_probability", "numpy", "sklearn")
SCRIPT = Path(sysconfig.get_path("scripts")) / "tfbnood"
# Puts what was imported on the last line, also when the code leaves by SystemExit.
LIST_MODULES = f"""
import atexit, sys
atexit.register(lambda: print("HEAVY", *[name for name in {HEAVY} if name in sys.modules]))
"""


def heavy_modules_after(code: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", LIST_MODULES + code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    marker, *names = run.stdout.splitlines()[-1].split()
    assert marker == "HEAVY"
    return names


def markdown_links(path: Path) -> list[str]:
    return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))


def test_the_probe_for_heavy_modules_sees_them():
    assert heavy_modules_after("import numpy") == ["numpy"]


def test_import_does_not_load_tensorflow():
    assert heavy_modules_after("import tfbnood") == []


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]], ids=" ".join)
def test_help_does_not_load_tensorflow(arguments):
    code = f"import tfbnood.cli; tfbnood.cli.main({arguments})"
    assert heavy_modules_after(code) == []


@pytest.mark.parametrize(
    "command",
    [[str(SCRIPT)], [sys.executable, "-m", "tfbnood.cli"]],
    ids=["tfbnood", "python -m tfbnood.cli"],
)
def test_help_works_as_a_command_and_as_a_module(command):
    run = subprocess.run([*command, "--help"], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert "usage: tfbnood" in run.stdout


def test_every_public_name_resolves():
    assert [name for name in tfbnood.__all__ if not hasattr(tfbnood, name)] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tfbnood.no_such_name


def test_type_hints_are_shipped():
    assert importlib.resources.files(tfbnood).joinpath("py.typed").is_file()
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    # The file being in the tree is not enough: a wheel holds only what is listed.
    assert "py.typed" in setup["options.package_data"]["tfbnood"].split()


def test_a_wheel_has_every_module_and_every_shipped_detector(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    # A copy: a build leaves folders behind in the tree it builds from.
    tree = tmp_path / "tree"
    # What is being made beside the finished detectors is not shipped.
    ignored = shutil.ignore_patterns("__pycache__", ".partial*")
    for name in ("tfbnood", "savedmodels"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    subprocess.run([*command, "-w", str(tmp_path), str(tree)], check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = set(wheel.namelist())
    modules = {str(path.relative_to(tree)) for path in (tree / "tfbnood").rglob("*.py")}
    shipped = {
        f"tfbnood/{path.relative_to(tree)}"
        for path in tree.glob("savedmodels/*/**/*")
        if path.is_file()
    }
    assert modules | shipped <= packed


def test_there_is_one_version():
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    declared = setup["metadata"]["version"]
    if declared.startswith("attr:"):
        module, _, name = declared.removeprefix("attr:").strip().rpartition(".")
        declared = pkgutil.resolve_name(f"{module}:{name}")
    assert declared == tfbnood.__version__ == importlib.metadata.version("tfbnood")
    assert f"[{declared}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["tools/demo", "tools/test"])
def test_readme_names_the_two_commands(command):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert command in readme
    # Executable in the tree: a fresh checkout must not need `bash` in front.
    assert (ROOT / command).stat().st_mode & 0o111


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_local_links_resolve(name):
    local = [link for link in markdown_links(ROOT / name) if not re.match(r"[a-z]+:|#", link)]
    assert local, f"{name} links to no file of the project"
    assert [link for link in local if not (ROOT / link.split("#")[0]).exists()] == []
