"""Environments made by uv, of the extra `dev`: it links packages from its cache, where pip copies and compiles them."""

import os
import pathlib
import subprocess
import sys

__all__ = ["IndexUnreachable", "make_environment", "run_uv"]

# What uv prints when it cannot connect, or is cut off.
_UNREACHABLE = "error sending request"


class IndexUnreachable(Exception):
    """No package can be downloaded."""


def run_uv(*arguments: str | os.PathLike[str]) -> str:
    """Runs uv with pip's index and certificates, and returns what it prints.

    Raises:
        IndexUnreachable: uv cannot connect to the index.
        RuntimeError: uv fails for another reason, which is the message.
    """
    environment = dict(os.environ)
    for ours, pips in (("UV_DEFAULT_INDEX", "PIP_INDEX_URL"), ("SSL_CERT_FILE", "PIP_CERT")):
        if pips in environment:
            environment.setdefault(ours, environment[pips])
    command = [sys.executable, "-m", "uv", "--quiet", "--no-config", *map(os.fspath, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    if run.returncode:
        error = IndexUnreachable if _UNREACHABLE in run.stderr else RuntimeError
        raise error(run.stderr.strip())
    return run.stdout


def make_environment(folder: pathlib.Path, python: str = sys.executable) -> pathlib.Path:
    """An empty environment in place of `folder`; returns its Python."""
    run_uv("venv", "--clear", "--no-python-downloads", "--python", python, folder)
    return folder / "bin" / "python"
