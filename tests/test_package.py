"""What holds for the package as a whole: quick to import, typed, documented, one version."""

import configparser
import email
import importlib.metadata
import importlib.resources
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
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


def anchors(path: Path) -> set[str]:
    """What links into a page may end in, by GitHub's rule."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


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
    [[str(SCRIPT)], [sys.executable, "-m", "tfbnood"]],
    ids=["tfbnood", "python -m tfbnood"],
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


@pytest.fixture(scope="module")
def smoke():
    """What tools/release/smoke does, step by step."""
    folder = ROOT / "tools" / "release"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return runpy.run_path(str(folder / "smoke.py"))


@pytest.fixture(scope="module")
def built(smoke, tmp_path_factory):
    """The sdist, the wheel of the checkout, and the wheel of the sdist."""
    return smoke["build"](tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def wheel(built):
    """What a user installs, and the tree that it was built from."""
    _, path, from_sdist = built
    return from_sdist, path.parents[1] / "tree"


def test_the_sdist_makes_the_same_wheel_as_the_checkout(smoke, built, tmp_path):
    sdist, wheel, from_sdist = built
    assert smoke["differing_files"](wheel, from_sdist) == set()
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "setup.cfg"} <= packed
    # A part of the tests, which setuptools packs by default, would not run.
    assert not any(name.startswith("tests") for name in packed)
    with zipfile.ZipFile(shutil.copy(wheel, tmp_path / wheel.name), "a") as archive:
        archive.writestr("tfbnood/added.py", "")
    assert smoke["differing_files"](tmp_path / wheel.name, wheel) == {"tfbnood/added.py"}


def test_a_wheel_has_every_module_and_every_shipped_detector(wheel):
    path, tree = wheel
    with zipfile.ZipFile(path) as archive:
        packed = set(archive.namelist())
    modules = {str(path.relative_to(tree)) for path in (tree / "tfbnood").rglob("*.py")}
    shipped = {
        f"tfbnood/{path.relative_to(tree)}"
        for pattern in ("*/MANIFEST.json", "*/README.md", "*/detector/*")
        for path in (tree / "savedmodels").glob(pattern)
    }
    assert len(shipped) == 5 * len(tfbnood.list_models())
    assert modules | shipped <= packed
    # Exported versions would double it; `tfbnood export` makes them.
    others = {name for name in packed if "savedmodels/" in name} - shipped
    assert others == set()
    assert path.stat().st_size < 45e6


def test_the_wheel_works_in_an_empty_environment(smoke, wheel, tmp_path):
    try:
        python = smoke["install"](wheel[0], tmp_path / "environment")
    except smoke["IndexUnreachable"] as error:
        pytest.skip(f"packages cannot be downloaded: {str(error).splitlines()[0]}")
    assert smoke["check"](python) == ["No broken requirements found."]
    version, _, *models, home = smoke["use"](python, tmp_path)
    assert version == f"tfbnood {tfbnood.__version__}"
    assert [line.split()[0] for line in models] == tfbnood.list_models()
    assert Path(home).is_relative_to(tmp_path / "environment")


def test_the_packages_of_this_environment_fit_together():
    run = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_an_install_has_what_tuning_and_pictures_need(wheel):
    with zipfile.ZipFile(wheel[0]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        about = email.message_from_bytes(archive.read(name))
    always = [line for line in about.get_all("Requires-Dist") if "extra ==" not in line]
    assert {"keras-tuner", "matplotlib"} <= {re.match(r"[\w-]+", line)[0] for line in always}
    assert {"networks", "beam"} <= set(about.get_all("Provides-Extra"))


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


PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "colab/README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
    "results/README.md",
    "tools/research/README.md",
]


@pytest.mark.parametrize("name", PAGES)
def test_local_links_resolve(name):
    page = ROOT / name
    local = [link for link in markdown_links(page) if not re.match(r"[a-z]+:", link)]
    for link in local:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_modules_that_pages_name_exist():
    # CONTRIBUTING.md also names modules that its examples make; tests/test_contributing.py makes them.
    pages = [ROOT / name for name in PAGES if name != "CONTRIBUTING.md"]
    for page in [*pages, *(ROOT / "colab").glob("*.ipynb")]:
        for name in re.findall(r"\btfbnood(?:\.[a-z_]+)+", page.read_text(encoding="utf-8")):
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                pytest.fail(f"{page.name} names {name}, which is not there")
