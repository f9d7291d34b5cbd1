"""Keeps TensorFlow's C++ log, which reports CUDA and CPU features at every start, off the terminal."""

import contextlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator

__all__ = ["quiet_tensorflow"]

_CPP_LOG = re.compile(rb"[IWE]\d{4} \d\d:\d\d:|WARNING: All log messages before absl::")


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Keeps the C++ log of TensorFlow off the terminal, unless TF_CPP_MIN_LOG_LEVEL asks for it."""
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") in ("0", "1"):
        yield
        return
    # The level does not affect messages of the import: https://github.com/tensorflow/tensorflow/issues/100442
    finder = _QuietImport()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _QuietImport(importlib.abc.MetaPathFinder):
    """Filters the C++ log from standard error while TensorFlow is being imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _without_cpp_log(lambda: execute(module))
        return spec


def _without_cpp_log(action: Callable[[], None]) -> None:
    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        terminal = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            action()
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            said.seek(0)
            for line in said:
                if not _CPP_LOG.match(line):
                    os.write(2, line)
