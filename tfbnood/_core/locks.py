"""A lock file that the operating system releases when its holder ends, whatever the cause."""

import contextlib
import errno
import os
import pathlib
import sys
import warnings
from collections.abc import Iterator

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["lock"]

# The errors of network file systems without locks.
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


@contextlib.contextmanager
def lock(path: str | os.PathLike, *, optional: bool = False) -> Iterator[None]:
    """Holds the lock file `path` in a block and removes it afterwards; threads exclude each other too.

    Args:
        path: the file; its folder must exist.
        optional: continue with a warning if the file system has no locks.

    Raises:
        BlockingIOError: another process or thread holds it.
        OSError: the file cannot be created or locked.
    """
    path = pathlib.Path(path)
    descriptor = _open_locked(path, optional)
    try:
        yield
    finally:
        # Removed before it is released, so that nobody locks a file that is about to go. Windows removes no open files.
        if sys.platform == "win32":
            os.close(descriptor)
        with contextlib.suppress(OSError):
            # If ours is gone, another holder's is in its place.
            if sys.platform == "win32" or os.fstat(descriptor).st_nlink > 0:
                path.unlink()
        if sys.platform != "win32":
            os.close(descriptor)


def _open_locked(path: pathlib.Path, optional: bool) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor)
            # Its last holder may have removed the file after we opened it and before we locked it.
            if os.fstat(descriptor).st_nlink > 0:
                return descriptor
        except OSError as error:
            if optional and error.errno in _UNSUPPORTED:
                warnings.warn(
                    f"the file system of {path.parent} has no locks: do not write there from two processes",
                    stacklevel=2,
                )
                return descriptor
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process") from error
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
