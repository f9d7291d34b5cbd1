"""Files that are either whole or not there: written beside their place, then renamed into it."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

__all__ = ["atomic_path", "write_json"]


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Gives a temporary path in the same folder; on success it replaces `path`, on an error it is removed."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays: Keras and NumPy choose the format by it.
    temporary = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, content: Any) -> None:
    """Writes readable JSON, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
