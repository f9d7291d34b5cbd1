"""Where the shipped detectors are: `savedmodels/NAME`, each with a `MANIFEST.json`.

The command line checks names with it, so it imports neither NumPy nor TensorFlow.
"""

import pathlib
import re

from tfbnood.errors import TfbnoodError

__all__ = ["base", "names"]

# Inside the package if installed, beside it in a checkout.
PLACES = tuple(pathlib.Path(__file__).resolve().parents[up] / "savedmodels" for up in (1, 2))


def names() -> list[str]:
    """Names of the shipped detectors."""
    return sorted({path.parent.name for place in PLACES for path in place.glob("*/MANIFEST.json")})


def base(name: str) -> pathlib.Path:
    """The folder of a shipped detector."""
    # A user's name must not lead out of the folder.
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-]+", name):
        for place in PLACES:
            if (place / name / "MANIFEST.json").is_file():
                return (place / name).resolve()
    known = ", ".join(names()) or "none are installed"
    raise TfbnoodError(f"name must be one of the shipped detectors, {known}. Received: {name!r}")
