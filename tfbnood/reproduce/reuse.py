"""Keeps trained models and fitted statistics, which take minutes to make, as files in a folder of runs."""

import hashlib
import json
import pathlib
from typing import Any, TypeVar

import numpy as np

from tfbnood._core.files import atomic_path
from tfbnood._core.provenance import array_sha256
from tfbnood._core.sampling import shuffled_halves
from tfbnood.data.sets import Dataset
from tfbnood.errors import TfbnoodError
from tfbnood.saving import load_model
from tfbnood.statistics.base import Statistic
from tfbnood.statistics.ensemble import Ensemble
from tfbnood.statistics.pretext.statistic import Pretext
from tfbnood.training.run import train
from tfbnood.zoo import fitted_member, trained_model

__all__ = ["load_or_fit", "load_or_train", "prepare_ensemble"]

Kind = TypeVar("Kind", bound=Statistic)


def load_or_train(
    dataset: Dataset,
    folder: pathlib.Path,
    *,
    model: str,
    preset: str,
    steps: int,
    seed: int = 0,
    mutation: float = 0.0,
    precision: str = "float32",
) -> Any:
    """The trained model in `folder`, or the shipped one of that name, or a new one.

    Args:
        dataset: to train on.
        folder: of the training run; its name is looked up among the shipped detectors.
        model: as for `train`, like the other arguments. A run with other settings is never used.

    Raises:
        TfbnoodError: if the run in the folder has other settings.
    """
    settings: dict[str, Any] = {"model": model, "preset": preset}
    settings |= {"steps": steps, "seed": seed, "mutation": mutation, "precision": precision}
    wanted = {"data": dataset.name, **settings}
    if (folder / "model.keras").is_file():
        # Version 0.1.0 had no precision.
        run = {"precision": "float32", **json.loads((folder / "run.json").read_text())}
        other = [key for key in wanted if run.get(key, 0) != wanted[key]]
        if other:
            raise TfbnoodError(
                f"{folder} must be a training run with {wanted}. Received: another {', '.join(other)}"
            )
        return load_model(folder / "model.keras")
    return trained_model(folder.name, wanted) or train(dataset, out=folder, **settings)


def load_or_fit(statistic: Kind, images: np.ndarray, folder: str | pathlib.Path) -> Kind:
    """The statistic, fitted to images without a model, or as saved by an earlier call in `folder`.

    The file's name is a hash of the settings and the images, so that files cannot be confused.
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


def prepare_ensemble(
    train_images: np.ndarray, folder: str | pathlib.Path, pretext: Pretext | None = None
) -> Ensemble:
    """An unfitted ensemble with a fitted `pretext`, the same for all models of these images.

    Its networks take minutes to train: it is taken from a shipped detector of the same images, else loaded from the
    folder or trained.
    """
    pretext = pretext or Pretext()
    shipped = fitted_member(pretext.name, pretext.get_config(), array_sha256(train_images))
    if shipped is None:
        known, _ = shuffled_halves(train_images)
        shipped = load_or_fit(pretext, known, folder)
    return Ensemble().take(shipped)
