"""Builds the sdist and the wheel, installs the wheel into an empty environment, and uses it there.

    tools/release/smoke [--folder FOLDER]

Fails if a wheel built from the sdist has other files than one built from the checkout, if `pip check` finds a conflict,
or if a command, a shipped detector or the few lines of Python in `USE` fail. FOLDER keeps sdist, wheel and environment.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

from environments import IndexUnreachable, make_environment, run_uv

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIED = "MANIFEST.in", "setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"
USE = """
import tfbnood
from tfbnood import zoo

x = tfbnood.data.load("digits")
model = tfbnood.models.RealNVP((8, 8, 1), channels=2, blocks=0, scales=1)
model.fit(x.train[:256], epochs=1, verbose=0)
detector = tfbnood.Detector(model, "bn_moments", reference=x.train).calibrate(x.calibration)
result = detector.predict(255 - x.test[:64], fpr=0.05)
assert result.is_ood.mean() > 0.9, result

names = tfbnood.list_models()
assert names
assert [zoo.changed_files(zoo.base(name)) for name in names] == [[]] * len(names)
assert tfbnood.load("digits_realnvp").predict(255 - x.test[:64], fpr=0.05).is_ood.all()
print(tfbnood.__file__)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, help="kept (default: a temporary one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sdist, wheel, from_sdist = build(folder)
        different = differing_files(wheel, from_sdist)
        if different:
            print(f"{sdist.name} makes another wheel: {', '.join(sorted(different))}")
            return 1
        try:
            python = install(from_sdist, folder / "environment")
        except IndexUnreachable as error:
            print(f"the wheel cannot be installed: {error}")
            return 1
        for line in (*check(python), *use(python, folder)):
            print(line)
    return 0


def build(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """The sdist, the wheel of the checkout, and the wheel of the sdist.

    A copy of the checkout is built, since a build leaves folders behind.
    """
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    # What is being made beside the finished detectors is not shipped.
    ignored = shutil.ignore_patterns("__pycache__", ".partial*")
    for name in ("tfbnood", "savedmodels", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in COPIED:
        shutil.copy(ROOT / name, tree)
    # With the setuptools of this environment: building needs no network.
    options = "--no-build-isolation", "--python", sys.executable, "--out-dir"
    run_uv("build", "--sdist", tree, *options, folder / "sdist")
    (sdist,) = (folder / "sdist").glob("*.tar.gz")
    run_uv("build", "--wheel", tree, *options, folder / "wheel")
    run_uv("build", "--wheel", sdist, *options, folder / "wheel-of-sdist")
    (wheel,) = (folder / "wheel").glob("*.whl")
    (from_sdist,) = (folder / "wheel-of-sdist").glob("*.whl")
    return sdist, wheel, from_sdist


def differing_files(one: pathlib.Path, other: pathlib.Path) -> set[str]:
    """Names of files that only one of two wheels has, or that differ."""
    return {name for name, _ in _hashes(one) ^ _hashes(other)}


def _hashes(wheel: pathlib.Path) -> set[tuple[str, str]]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            (name, hashlib.sha256(archive.read(name)).hexdigest()) for name in archive.namelist()
        }


def install(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Installs the wheel and what it requires into an empty environment; returns its Python.

    Raises:
        IndexUnreachable: nothing can be downloaded.
    """
    python = make_environment(folder)
    run_uv("pip", "install", "--python", python, wheel)
    return python


def check(python: pathlib.Path) -> list[str]:
    """What `pip check` prints about an environment, which needs no pip of its own."""
    return _lines([sys.executable, "-m", "pip", "--python", str(python), "check"], python.parent)


def use(python: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """What the installed package prints, called from outside the checkout."""
    command = str(python.with_name("tfbnood"))
    return [
        *_lines([command, "--version"], folder),
        *_lines([command, "models"], folder),
        # Isolated: neither PYTHONPATH nor the working folder may help.
        *_lines([str(python), "-I", "-c", USE], folder),
    ]


def _lines(command: list[str], folder: pathlib.Path) -> list[str]:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    if run.returncode:
        raise RuntimeError(f"{' '.join(command[:5])} failed:\n{run.stdout}{run.stderr}")
    return run.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
