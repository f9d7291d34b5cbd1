"""Imports Apache Beam, or explains how to get it. Imported before everything that needs it."""

import importlib
import logging

from tfbnood.errors import TfbnoodError

__all__ = ["MissingBeamError"]


class MissingBeamError(TfbnoodError, ImportError):
    """Apache Beam, or a package it reads files with, is not installed."""


_disabled = logging.root.manager.disable
logging.disable(logging.WARNING)  # Beam warns about missing clients that are not needed here.
try:
    for _name in ("apache_beam", "pyarrow", "google_crc32c"):
        importlib.import_module(_name)
except ImportError as error:
    raise MissingBeamError(
        f'tfbnood.beam needs Apache Beam; run pip install "tfbnood[beam]". Received: {error}'
    ) from error
finally:
    logging.disable(_disabled)
