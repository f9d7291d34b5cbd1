"""Files and folders that are either complete or absent: written next to their place, then renamed into it.

Unfinished content lies in a hidden folder `.partial-…-NAME` beside its place, together with a lock file. If nobody
holds the lock, the writer was killed; the next writer of NAME removes the folder.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tfbnood._core.locks import lock
from tfbnood.errors import TfbnoodError

__all__ = [
    "atomic_folder",
    "atomic_path",
    "file_sha256",
    "is_base",
    "list_names",
    "next_version",
    "publish_version",
    "read_whole",
    "remove_leftovers",
    "restore_folder",
    "staging_folder",
    "version_folders",
    "write_json",
    "writing",
]

Result = TypeVar("Result")

_PARTIAL = ".partial-"
_LOCK, _OLD = "lock", "old"  # in a `.partial-…` folder
# The errors of a rename onto a folder with files.
_OCCUPIED = {errno.ENOTEMPTY, errno.EEXIST}
_SYSTEM_ERRORS = tuple(os.strerror(code) for code in errno.errorcode)


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
    """Turns system errors in a block (no space, no permission, …) into a `TfbnoodError` of one line."""
    try:
        yield
    except Exception as error:
        reason = _shorten_reason(error)
        if reason is None:
            raise
        raise TfbnoodError(f"{path} cannot be written ({reason})") from error


def _shorten_reason(error: Exception) -> str | None:
    text = str(error)
    if isinstance(error, OSError):
        # Libraries such as h5py put a paragraph into an OSError.
        return os.strerror(error.errno) if error.errno else text.partition("\n")[0]
    if type(error).__module__.startswith("tensorflow."):  # "PATH; No space left on device"
        return next((reason for reason in _SYSTEM_ERRORS if f"; {reason}" in text), None)
    return None


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a temporary path of the same name; on success it replaces `path`, on an error it is removed.

    Raises:
        TfbnoodError: if the system refuses, e.g. for lack of space or permission.
    """
    path = pathlib.Path(path)
    with writing(path), _stage(path) as temporary:
        yield temporary
        os.replace(temporary, path)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a new folder; on success it replaces the folder `path`, on an error it is removed.

    Replacing a folder that is not empty takes two renames. After a kill between them, `restore_folder` or the next
    `atomic_folder` finds the old folder and puts it back.

    Raises:
        TfbnoodError: if the system refuses, e.g. for lack of space or permission.
    """
    path = pathlib.Path(os.path.abspath(path))  # "." has no name
    with writing(path), _stage(path) as temporary:
        temporary.mkdir()
        yield temporary
        _replace_folder(temporary, path)


def _replace_folder(temporary: pathlib.Path, path: pathlib.Path) -> None:
    old = temporary.with_name(_OLD)
    while True:
        with contextlib.suppress(FileNotFoundError):
            path.rename(old)
        try:
            temporary.rename(path)
            # At once: while yet another writer has moved the new folder aside, `_settle` would put the old one back.
            shutil.rmtree(old, ignore_errors=True)
            return
        except OSError as error:
            # Decided by the error, not by a look: a third writer may have removed the folder again.
            if error.errno not in _OCCUPIED and not path.exists():
                raise
            # Another process has put its folder there meanwhile: replace that one.
            shutil.rmtree(old, ignore_errors=True)


def restore_folder(path: str | os.PathLike) -> None:
    """Puts the folder `path` back after a kill between the two renames of `atomic_folder`."""
    path = pathlib.Path(os.path.abspath(path))
    for _ in range(50):
        taken = (
            [] if path.exists() else [one for one in _list_partials(path) if (one / _OLD).exists()]
        )
        if not taken:
            return
        for partial in taken:
            _settle_leftover(partial)
        if not path.exists():
            time.sleep(0.1)  # A living process is between the two renames.


def list_names(path: str | os.PathLike) -> set[str] | None:
    """The names in the folder `path`, all of one folder, even while others replace it; None if there is none.

    Raises:
        NotADirectoryError: if `path` is a file.
    """
    try:
        return read_whole(path, lambda: set(os.listdir(path)))
    except FileNotFoundError:
        return None


def read_whole(path: str | os.PathLike, read: Callable[[], Result]) -> Result:
    """What `read` returns or raises about the folder `path`; called again if others replaced the folder meanwhile."""
    while True:
        before = _identify(path)
        try:
            result = read()
        except (OSError, TfbnoodError):
            if _identify(path) == before:
                raise
        else:
            if _identify(path) == before:
                return result


def _identify(path: str | os.PathLike) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    # The number of a removed folder is soon another's; a rename changes the time.
    return found.st_dev, found.st_ino, found.st_ctime_ns


@contextlib.contextmanager
def staging_folder(base: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a new folder inside `base`, under a name that no server loads, for `publish_version`.

    Raises:
        TfbnoodError: if the system refuses, e.g. for lack of space or permission.
    """
    base = pathlib.Path(base)
    with writing(base), _stage(base / "version") as temporary:
        yield temporary


def publish_version(folder: pathlib.Path, base: str | os.PathLike) -> pathlib.Path:
    """Renames a folder to `BASE/<next integer>` and returns that; concurrent processes get different numbers."""
    while True:
        version = pathlib.Path(base) / str(next_version(base))
        try:
            return folder.rename(version)
        except OSError:
            if not version.exists():
                raise


def next_version(base: str | os.PathLike) -> int:
    """One more than the largest number in a model base, whether a server would load that version or not."""
    return max(_numbered(base), default=0) + 1


def version_folders(base: str | os.PathLike) -> dict[int, pathlib.Path]:
    """By number, the versions of a model base that TF Serving would load: with a `saved_model.pb`."""
    return {
        number: path
        for number, path in sorted(_numbered(base).items())
        if (path / "saved_model.pb").is_file()
    }


def is_base(path: str | os.PathLike) -> bool:
    """Whether a folder is a model base: holds at least one version."""
    return bool(version_folders(path))


def _numbered(base: str | os.PathLike) -> dict[int, pathlib.Path]:
    base = pathlib.Path(base)
    paths = base.iterdir() if base.is_dir() else ()
    named = {path.name: path for path in paths if path.name.isascii() and path.name.isdecimal()}
    # TF Serving's versions are 64-bit integers.
    return {int(name): path for name, path in named.items() if len(name) < 19}


def remove_leftovers(folder: str | os.PathLike) -> None:
    """Removes what killed writers left in a folder or below, but nothing that is being written."""
    # `rglob` would raise for a folder that another writer removes meanwhile.
    found = [
        pathlib.Path(parent, name)
        for parent, folders, files in os.walk(os.fspath(folder))
        for name in (*folders, *files)
        if name.startswith(_PARTIAL)
    ]
    for partial in found:
        _settle_leftover(partial)


def write_json(path: str | os.PathLike, content: Any, *, compact: bool = False) -> None:
    """Writes JSON atomically; indented, or `compact` for thousands of numbers."""
    text = json.dumps(content, indent=None if compact else 2, ensure_ascii=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", "utf-8")


def file_sha256(path: str | os.PathLike) -> str:
    """SHA-256 of a file's content, in constant memory."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def _stage(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a path of the same name in a hidden folder beside it, which is removed at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for partial in _list_partials(path):
        _settle_leftover(partial)
    with contextlib.ExitStack() as stack:
        while True:
            # The same name, since Keras and NumPy choose the format by its suffix.
            name = tempfile.mkdtemp(prefix=_PARTIAL, suffix=f"-{path.name}", dir=path.parent)
            partial = pathlib.Path(name)
            stack.callback(shutil.rmtree, partial, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                stack.enter_context(lock(partial / _LOCK, optional=True))
                break
            # Another writer took it for a leftover before we locked it: make a new one.
        stack.callback(_settle, partial)  # while it is locked
        yield partial / path.name


def _list_partials(path: pathlib.Path) -> list[pathlib.Path]:
    """The `.partial-…` folders of a place."""
    return [one for one in path.parent.glob(f"{_PARTIAL}*") if _place(one) == path]


def _place(partial: pathlib.Path) -> pathlib.Path:
    return partial.with_name(partial.name.split("-", 2)[-1])


def _settle_leftover(partial: pathlib.Path) -> None:
    if not partial.is_dir():
        partial.unlink(missing_ok=True)  # left by version 0.1.0
        return
    # Locked: it is being written. No permission: it is not ours.
    with contextlib.suppress(OSError), lock(partial / _LOCK):
        _settle(partial)


def _settle(partial: pathlib.Path) -> None:
    """Puts the old folder back if nothing has replaced it, and removes the rest."""
    place = _place(partial)
    if (partial / _OLD).exists() and not place.exists():
        try:
            (partial / _OLD).rename(place)
        except OSError as error:
            if error.errno not in _OCCUPIED and not place.exists():
                raise
    shutil.rmtree(partial, ignore_errors=True)
