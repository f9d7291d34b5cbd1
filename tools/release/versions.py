"""Runs the quick tests with the lowest and with the newest versions that setup.cfg allows.

    tools/release/versions [lowest] [newest] [--folder FOLDER] [--out results/versions.json]

`lowest` takes the lowest versions of `install_requires` and the lowest Python of `python_requires` if it is installed,
else the current one; `newest` takes the newest of both. The tests' own packages are the newest that fit. Environments
are made anew under FOLDER, outside the checkout.
"""

import argparse
import configparser
import importlib.metadata
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from environments import IndexUnreachable, make_environment, run_uv

from tfbnood._core.files import write_json

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
# Of the extra `dev`, what the quick tests import.
TEST_PACKAGES = "hypothesis", "pandas", "pytest", "pytest-xdist", "setuptools"
# TensorFlow's wheels lag behind Python.
NEWEST_PYTHON = 13


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", nargs="*", metavar="WHICH", help="lowest, newest (default: both)")
    parser.add_argument("--folder", type=pathlib.Path, default="~/.cache/tfbnood/versions")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "versions.json")
    arguments = parser.parse_args()
    if unknown := set(arguments.which) - set(RESOLUTIONS):
        parser.error(f"WHICH must be lowest or newest. Received: {', '.join(unknown)}")
    folder = arguments.folder.expanduser().resolve()
    found = json.loads(arguments.out.read_text("utf-8")) if arguments.out.exists() else {}
    found["command"] = "tools/release/versions"
    failed = False
    for which in arguments.which or RESOLUTIONS:
        try:
            found[which] = result = run(which, folder / which)
        except (IndexUnreachable, RuntimeError) as error:
            print(f"{which}: the environment cannot be made: {error}", file=sys.stderr)
            return 1
        failed = failed or bool(result["failed"]) or not result["passed"]
        write_json(arguments.out, found)
        counts = ", ".join(f"{result[name]} {name}" for name in ("passed", "failed", "skipped"))
        print(f"{which}: Python {result['python']}: {counts}", flush=True)
    return int(failed)


def run(which: str, folder: pathlib.Path) -> dict[str, object]:
    """Makes the environment and runs the tests: versions and counts."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    requirements = listed(setup["options"]["install_requires"])
    dev = listed(setup["options.extras_require"]["dev"])
    python = make_environment(folder, find_python(which, setup["options"]["python_requires"]))
    install = "pip", "install", "--python", python
    run_uv(*install, "--resolution", RESOLUTIONS[which], *requirements)
    # Packages that are installed stay as they are where they can.
    run_uv(*install, *(line for line in dev if name_of(line) in TEST_PACKAGES))
    versions = installed(python)
    return {
        "tfbnood": importlib.metadata.version("tfbnood"),
        "python": run_python(python, "import platform; print(platform.python_version())"),
        "versions": {name_of(line): versions[name_of(line)] for line in requirements},
        "test_versions": {name: versions[name] for name in TEST_PACKAGES},
        **test(python),
    }


def listed(text: str) -> list[str]:
    """The requirements of an entry in setup.cfg."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def name_of(requirement: str) -> str:
    """The normalised name of a requirement: `keras_tuner>=1.4` → `keras-tuner`."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0].lower())


def find_python(which: str, python_requires: str) -> str:
    """A Python for an environment: the lowest that setup.cfg allows, or the newest; else the current one."""
    lowest = int(re.fullmatch(r">=3\.(\d+)", python_requires)[1])
    minors = [lowest] if which == "lowest" else range(NEWEST_PYTHON, lowest - 1, -1)
    for minor in minors:
        for path in (f"python3.{minor}", *pyenv_pythons(minor)):
            # Running it, not only finding it: a pyenv shim exists also for versions that are not active.
            code = f"import sys; assert sys.version_info[:2] == (3, {minor}); print(sys.executable)"
            try:
                return run_python(path, code)
            except (OSError, subprocess.CalledProcessError):
                continue
    current = ".".join(map(str, sys.version_info[:2]))
    print(f"{which}: Python 3.{minors[0]} is not installed; {current} is used", file=sys.stderr)
    return sys.executable


def pyenv_pythons(minor: int) -> list[str]:
    root = pathlib.Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    return [str(path) for path in root.glob(f"versions/3.{minor}.*/bin/python")]


def run_python(python: str | pathlib.Path, code: str) -> str:
    command = [str(python), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def installed(python: pathlib.Path) -> dict[str, str]:
    packages = json.loads(run_uv("pip", "list", "--python", python, "--format", "json"))
    return {name_of(package["name"]): package["version"] for package in packages}


def test(python: pathlib.Path) -> dict[str, object]:
    """Runs the quick tests: counts, and the names of those that fail."""
    # The files alone: others import what is not installed.
    quick = runpy.run_path(str(ROOT / "tests" / "conftest.py"))["_QUICK"]
    with tempfile.TemporaryDirectory() as temporary:
        report = pathlib.Path(temporary) / "report.xml"
        options = ["-q", "-m", "quick", "-n", "2", "--dist", "loadfile", f"--junitxml={report}"]
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *options]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONPATH", None)
        subprocess.run([*command, *(f"tests/{name}" for name in quick)], cwd=ROOT, env=environment)
        if not report.exists():
            raise RuntimeError("pytest did not start, see above")
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - len(failed) - skipped
    return {
        "passed": passed,
        "failed": len(failed),
        "skipped": skipped,
        "failed_tests": failed,
    }


if __name__ == "__main__":
    sys.exit(main())
