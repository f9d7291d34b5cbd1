"""What a result file records about the origin of its numbers."""

import hashlib
import importlib.metadata
import os
import platform

import numpy as np

from tfbnood._version import __version__

__all__ = ["array_sha256", "machine", "versions"]

_PACKAGES = ("tensorflow", "keras", "tensorflow-probability", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Versions of Python, tfbnood and the packages its numbers depend on."""
    return {
        "tfbnood": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def machine() -> dict[str, str | int]:
    """The kind of machine: processor, cores, system; nothing that identifies the machine itself."""
    return {"processor": _processor(), "cores": os.cpu_count() or 1, "system": platform.system()}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def array_sha256(array: np.ndarray) -> str:
    """A hash of an array's shape, dtype and values."""
    digest = hashlib.sha256(f"{array.shape} {array.dtype.str}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
