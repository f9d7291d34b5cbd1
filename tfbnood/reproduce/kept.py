"""Fitted statistics as files: what takes minutes to fit is fitted once, by whoever asks first."""

import hashlib
import json
import pathlib
from typing import TypeVar

import numpy as np

from tfbnood._core.files import atomic_path
from tfbnood._core.provenance import array_sha256
from tfbnood._core.sampling import shuffled_halves
from tfbnood.statistics.base import Statistic
from tfbnood.statistics.ensemble import Ensemble
from tfbnood.statistics.pretext.statistic import Pretext

__all__ = ["kept", "kept_ensemble"]

Kind = TypeVar("Kind", bound=Statistic)


def kept(statistic: Kind, images: np.ndarray, folder: str | pathlib.Path) -> Kind:
    """The statistic, fitted to images without a model, or as an earlier call kept it in `folder`.

    The file's name is a hash of the settings and of the images, so that it can be of nothing else.
    """
    about = json.dumps(statistic.get_config(), sort_keys=True) + array_sha256(images)
    name = f"{statistic.name}_{hashlib.sha256(about.encode()).hexdigest()[:16]}.npz"
    path = pathlib.Path(folder) / name
    if path.is_file():
        with np.load(path) as state:
            statistic.set_state(None, dict(state))
    else:
        statistic.fit(None, images, progress=True)
        with atomic_path(path) as temporary:
            np.savez_compressed(temporary, allow_pickle=False, **statistic.get_state())
    return statistic


def kept_ensemble(
    train: np.ndarray, folder: str | pathlib.Path, pretext: Pretext | None = None
) -> Ensemble:
    """An ensemble to be fitted to `train`, with a `pretext` that is fitted once for all models of these images."""
    known, _ = shuffled_halves(train)
    return Ensemble().take(kept(pretext or Pretext(), known, folder))
