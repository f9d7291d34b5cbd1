"""`tfbnood serve`: the real TF Serving where there is one, its container where Docker answers, else the stand-in."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from tfbnood.errors import TfbnoodError

__all__ = [
    "MODEL_SERVER_VARIABLE",
    "container_command",
    "find_model_server",
    "serve",
    "server_command",
]

MODEL_SERVER_VARIABLE = "TFBNOOD_MODEL_SERVER"
_IMAGE = "tensorflow/serving"


def serve(
    path: str | os.PathLike,
    *,
    port: int = 8501,
    host: str = "127.0.0.1",
    stand_in: bool = False,
    merge: bool = False,
) -> int:
    """Serves models until Ctrl-C and returns the exit code.

    Args:
        path: a model base, a folder of bases, or a `models.config` of TF Serving.
        port: of the REST API.
        host: to bind to; the real server binds to all addresses, which is said.
        stand_in: use the stand-in even where there is a real server.
        merge: let the stand-in join the rows of concurrent requests, as server-side batching does.
    """
    path = pathlib.Path(path).resolve()
    if not path.exists():
        raise TfbnoodError(
            f"path must be a model base, a folder of bases or a models.config. Received: {path}"
        )
    executable = None if stand_in else find_model_server()
    if executable is not None:
        _say("TF Serving's own server; it binds to all addresses of this machine")
        return _run(server_command(executable, path, port))
    if not stand_in and _docker_answers():
        return _run(container_command(path, port, host))
    from tfbnood.serving.standin.config import models_from
    from tfbnood.serving.standin.server import Server

    _say(
        "no tensorflow_model_server and no Docker here: this is a stand-in for development, not for production"
    )
    Server(models_from(path), host=host, port=port, merge=merge).serve_forever()
    return 0


def find_model_server() -> str | None:
    """The path of `tensorflow_model_server`, from `TFBNOOD_MODEL_SERVER` or the PATH."""
    named = os.environ.get(MODEL_SERVER_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise TfbnoodError(
                f"{MODEL_SERVER_VARIABLE} must name an executable file. Received: {named!r}"
            )
        return found
    return shutil.which("tensorflow_model_server")


def server_command(executable: str, path: pathlib.Path, port: int) -> list[str]:
    """The command line of the real server."""
    command = [executable, f"--rest_api_port={port}", "--port=0"]
    if is_base(path):
        return [*command, f"--model_name={path.name}", f"--model_base_path={path}"]
    return [*command, f"--model_config_file={_config_file(path)}"]


def container_command(path: pathlib.Path, port: int, host: str) -> list[str]:
    """The command line of the official container; a `models.config` must name paths inside it."""
    command = ["docker", "run", "--rm", "-p", f"{host}:{port}:8501"]
    if is_base(path):
        command += ["-v", f"{path}:/models/{path.name}:ro", "-e", f"MODEL_NAME={path.name}", _IMAGE]
        return command
    if path.is_dir():
        for base in _bases(path):
            command += ["-v", f"{base}:/models/{base.name}:ro"]
        path = _config_file(path, inside="/models")
    command += ["-v", f"{path}:/config/models.config:ro", _IMAGE]
    return [*command, "--model_config_file=/config/models.config"]


def is_base(path: pathlib.Path) -> bool:
    """Whether a folder holds versions: integers with a `saved_model.pb`."""
    return path.is_dir() and any(
        re.fullmatch(r"\d+", version.name) and (version / "saved_model.pb").is_file()
        for version in path.iterdir()
    )


def _bases(folder: pathlib.Path) -> list[pathlib.Path]:
    bases = sorted(path for path in folder.iterdir() if is_base(path))
    if not bases:
        raise TfbnoodError(
            f"path must hold model bases, NAME/1/saved_model.pb. Received: {folder} without any"
        )
    return bases


def _config_file(path: pathlib.Path, inside: str | None = None) -> pathlib.Path:
    """A `models.config` for a folder of bases; a file is taken as it is."""
    if path.is_file():
        return path
    lines = ["model_config_list {"]
    for base in _bases(path):
        place = base if inside is None else f"{inside}/{base.name}"
        lines.append(
            f'  config {{ name: "{base.name}" base_path: "{place}" model_platform: "tensorflow" }}'
        )
    config = pathlib.Path(tempfile.mkdtemp(prefix="tfbnood-")) / "models.config"
    config.write_text("\n".join([*lines, "}\n"]))
    return config


def _docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _run(command: list[str]) -> int:
    _say(shlex.join(command))
    try:
        return subprocess.run(command).returncode
    except KeyboardInterrupt:
        return 0  # The server had the Ctrl-C as well, and has drained.


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
