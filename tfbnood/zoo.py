"""Trained detectors that ship with the package: `savedmodels/NAME`, each a model base for TF Serving.

A base has the detector for Python (`detector/`) and `MANIFEST.json`, which states what it was trained on, how well it
works, and the hash of every file. In a checkout it also has the exported version (`1/`). An installed package omits it,
since it is as large as the detector; `tfbnood export` makes it.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tfbnood._core import shipped
from tfbnood._core.files import file_sha256
from tfbnood.detector import Detector
from tfbnood.errors import SavedDetectorError
from tfbnood.statistics.base import EvidenceStatistic
from tfbnood.statistics.ensemble import Ensemble

__all__ = [
    "base",
    "changed_files",
    "file_hashes",
    "fitted_member",
    "list_models",
    "load",
    "manifest",
    "trained_model",
]


def list_models() -> list[str]:
    """Names of the trained detectors that ship with the package.

    Example:
        >>> "digits_realnvp" in tfbnood.list_models()
        True
    """
    return shipped.names()


def load(name: str | os.PathLike[str]) -> Detector:
    """Loads a detector: one that ships with the package by its name, or your own by its folder.

    Args:
        name: one of `list_models()`, the folder of a detector, or a model base with a folder `detector/` in it.

    Returns:
        The `Detector`; its Keras model is `.model`. Shipped ones are calibrated and have the statistic "auto"; their
        manifest is `.about["manifest"]`.

    Example:
        >>> detector = tfbnood.load("digits_realnvp")
        >>> detector.image_shape, detector.statistic.name
        ((8, 8, 1), 'ensemble')
    """
    if not isinstance(name, str | os.PathLike):
        base(name)  # Raises the error about names.
    is_path = isinstance(name, os.PathLike) or os.sep in name
    # Names first: a folder with the name of a shipped detector is given as ./NAME.
    if is_path or name not in list_models():
        for folder in (pathlib.Path(name), pathlib.Path(name) / "detector"):
            if (folder / "detector.json").is_file():
                return Detector.load(folder)
    if is_path:
        raise SavedDetectorError(
            f"name must be one of the shipped detectors, {', '.join(list_models())}, or the folder of a saved one. "
            f"Received: {name}, which {'has none' if pathlib.Path(name).exists() else 'does not exist'}"
        )
    name = str(name)
    detector = Detector.load(base(name) / "detector")
    detector.about = {**detector.about, "manifest": manifest(name)}
    return detector


def base(name: str) -> pathlib.Path:
    """The folder of a shipped detector; in a checkout it has an exported version for `tfbnood serve`.

    Example:
        >>> base("digits_realnvp").name
        'digits_realnvp'
    """
    return shipped.base(name)


def manifest(name: str) -> dict[str, Any]:
    """The content of a shipped detector's MANIFEST.json.

    Example:
        >>> manifest("digits_realnvp")["training"]["train_images"]
        1100
    """
    path = base(name) / "MANIFEST.json"
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise SavedDetectorError(f"{path} must be JSON. Received: {error}") from None


def changed_files(folder: pathlib.Path) -> list[str]:
    """Files of a base that are missing, new or differ from its MANIFEST.json.

    A missing version does not count: an installed package has none.
    """
    expected = json.loads((folder / "MANIFEST.json").read_text())["sha256"]
    found = file_hashes(folder)
    tops = {key.partition("/")[0] for key in expected}
    left_out = {top for top in tops if top.isdigit() and not (folder / top).exists()}
    expected = {key: of for key, of in expected.items() if key.partition("/")[0] not in left_out}
    return sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key))


def file_hashes(folder: pathlib.Path) -> dict[str, str]:
    """SHA-256 of every file below a base, except the manifest and the card that is made from it."""
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path not in (folder / "MANIFEST.json", folder / "README.md")
    }


def trained_model(name: str, training: Mapping[str, Any]) -> Any:
    """The Keras model of a shipped detector if it was trained in exactly that way, else None."""
    if name not in list_models():
        return None
    made = {
        "precision": "float32",
        **manifest(name)["training"],
    }  # Earlier manifests do not state it.
    same = all(made.get(key, 0) == value for key, value in training.items())
    return load(name).model if same else None


def fitted_member(
    statistic: str, config: Mapping[str, Any], train_sha256: str
) -> EvidenceStatistic | None:
    """A member of a shipped detector's `ensemble`, if it has this configuration and was fitted to these images."""
    for name in list_models():
        if manifest(name)["training"]["train_sha256"] != train_sha256:
            continue
        ensemble = load(name).statistic
        assert isinstance(ensemble, Ensemble)
        member = ensemble.member(statistic)
        if member.get_config() == config:
            return member
    return None
