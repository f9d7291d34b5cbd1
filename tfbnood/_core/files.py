"""Files that are either whole or not there: written beside their place, then renamed into it."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from tfbnood.errors import TfbnoodError

__all__ = ["atomic_path", "remove_partials", "write_json"]

_PARTIAL = ".partial-"


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Gives a temporary path in the same folder; on success it replaces `path`, on an error it is removed.

    Raises:
        TfbnoodError: there is no room, no permission or the like.
    """
    path = pathlib.Path(path)
    # The suffix stays: Keras and NumPy choose the format by it.
    temporary = path.with_name(f"{_PARTIAL}{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise TfbnoodError(f"{path} cannot be written ({error.strerror or error})") from error


def remove_partials(folder: str | os.PathLike) -> None:
    """Removes what a process that was killed while it wrote has left in a folder."""
    for path in pathlib.Path(folder).glob(f"{_PARTIAL}*"):
        path.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, content: Any, *, compact: bool = False) -> None:
    """Writes JSON, atomically; readable, or `compact` where there are thousands of numbers."""
    with atomic_path(path) as temporary:
        text = json.dumps(content, indent=None if compact else 2, ensure_ascii=False)
        temporary.write_text(text + "\n", "utf-8")
