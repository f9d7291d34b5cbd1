"""`tfbnood serve`: TF Serving if it is installed, its container if Docker runs, else the stand-in."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import NoReturn

from tfbnood._core.files import is_base
from tfbnood.errors import TfbnoodError
from tfbnood.serving.model_server_config import new_model_server_config, write_model_server_config
from tfbnood.serving.standin import BATCH_TIMEOUT_MICROS, MAX_BATCH_SIZE, MAX_ROWS

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
    max_batch_size: int = MAX_BATCH_SIZE,
    batch_timeout_micros: int = BATCH_TIMEOUT_MICROS,
    max_rows: int = MAX_ROWS,
) -> int:
    """Serves models until Ctrl-C or SIGTERM and returns the exit code.

    While models are being loaded, a signal ends the process at once: with code 130 for Ctrl-C, 0 for SIGTERM.

    Args:
        path: a model base, a folder of bases, or a `models.config` of TF Serving.
        port: of the REST API.
        host: to bind to; the real server binds to all addresses, and a message says so.
        stand_in: use the stand-in even if there is a real server.
        merge: join the rows of concurrent requests (server-side batching).
        max_batch_size: with `merge`, the maximum number of rows per call; larger requests are refused.
        batch_timeout_micros: with `merge`, how long a call waits for other requests.
        max_rows: the maximum number of rows per request to the stand-in; the real server has no such limit.
    """
    path = pathlib.Path(path).resolve()
    if not path.exists():
        raise TfbnoodError(
            f"path must be a model base, a folder of bases or a models.config. Received: {path}"
        )
    batching = (max_batch_size, batch_timeout_micros) if merge else None
    executable = None if stand_in else find_model_server()
    if executable is not None:
        _say("TF Serving's own server; it binds to all addresses of this machine")
        return _run(server_command(executable, path, port, batching=batching))
    if not stand_in and _docker_answers():
        return _run(container_command(path, port, host, batching=batching))
    from tfbnood.serving.standin.config import models_from
    from tfbnood.serving.standin.server import Server

    _say(
        "found neither tensorflow_model_server nor Docker: using a stand-in for development, not for production"
    )
    server = Server(
        models_from(path),
        host=host,
        port=port,
        merge=merge,
        max_batch_size=max_batch_size,
        batch_timeout_micros=batch_timeout_micros,
        max_rows=max_rows,
    )
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        _end_at_once(130)
    except SystemExit:  # SIGTERM while loading
        _end_at_once(0)
    if server.is_loading:
        _end_at_once(0)
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


def server_command(
    executable: str, path: pathlib.Path, port: int, *, batching: tuple[int, int] | None = None
) -> list[str]:
    """The command line of the real server; `batching` is the maximum batch and the time-out in microseconds."""
    command = [executable, f"--rest_api_port={port}", "--port=0"]
    if batching is not None:
        command += _batching_options(_batching_file(*batching))
    if is_base(path):
        return [*command, f"--model_name={path.name}", f"--model_base_path={path}"]
    return [*command, f"--model_config_file={_config_file(path)}"]


def container_command(
    path: pathlib.Path, port: int, host: str, *, batching: tuple[int, int] | None = None
) -> list[str]:
    """The command line of the official container; a `models.config` must name paths inside it."""
    command = ["docker", "run", "--rm", "-p", f"{host}:{port}:8501"]
    options: list[str] = []
    if batching is not None:
        command += ["-v", f"{_batching_file(*batching)}:/config/batching.config:ro"]
        options = _batching_options("/config/batching.config")
    if is_base(path):
        command += ["-v", f"{path}:/models/{path.name}:ro", "-e", f"MODEL_NAME={path.name}", _IMAGE]
        return [*command, *options]
    if path.is_dir():
        for base in _bases(path):
            command += ["-v", f"{base}:/models/{base.name}:ro"]
        path = _config_file(path, inside="/models")
    command += ["-v", f"{path}:/config/models.config:ro", _IMAGE]
    return [*command, *options, "--model_config_file=/config/models.config"]


def _bases(folder: pathlib.Path) -> list[pathlib.Path]:
    bases = sorted(path for path in folder.iterdir() if is_base(path))
    if not bases:
        raise TfbnoodError(
            f"path must hold model bases, NAME/1/saved_model.pb. Received: {folder}, which has none"
        )
    return bases


def _config_file(path: pathlib.Path, inside: str | None = None) -> pathlib.Path:
    """Yields a `models.config` for a folder of bases; a file is used as it is."""
    if path.is_file():
        return path
    message = new_model_server_config()
    for base in _bases(path):
        place = str(base) if inside is None else f"{inside}/{base.name}"
        message.model_config_list.config.add(
            name=base.name, base_path=place, model_platform="tensorflow"
        )
    return _temporary_file("models.config", write_model_server_config(message))


def _batching_options(file: str | pathlib.Path) -> list[str]:
    return ["--enable_batching=true", f"--batching_parameters_file={file}"]


def _batching_file(max_batch_size: int, batch_timeout_micros: int) -> pathlib.Path:
    lines = (
        f"max_batch_size {{ value: {max_batch_size} }}\n"
        f"batch_timeout_micros {{ value: {batch_timeout_micros} }}\n"
    )
    return _temporary_file("batching.config", lines)


def _temporary_file(name: str, content: str) -> pathlib.Path:
    file = pathlib.Path(tempfile.mkdtemp(prefix="tfbnood-")) / name
    file.write_text(content, "utf-8")
    return file


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
        return 0  # The server received the Ctrl-C as well, and has drained.


def _end_at_once(code: int) -> NoReturn:
    _say("tfbnood serve: stopped")
    # A thread may be inside TensorFlow: an orderly exit of Python would wait for it, or crash.
    sys.stdout.flush()
    os._exit(code)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
