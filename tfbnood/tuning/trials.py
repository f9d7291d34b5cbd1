"""One trial of a search: a model with sizes near a preset's, trained, saved and measured on held-out images."""

import concurrent.futures
import copy
import dataclasses
import math
import pathlib
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import keras
import keras_tuner
import numpy as np
from tqdm import tqdm

from tfbnood._core.files import atomic_path
from tfbnood._core.presets import SEARCHED
from tfbnood._core.presets import preset as named_preset
from tfbnood.errors import TfbnoodError, TrainingDivergedError
from tfbnood.models import LikelihoodModel
from tfbnood.models.optimizer import Adam
from tfbnood.models.registry import model_class
from tfbnood.statistics.base import Statistic
from tfbnood.training.schedule import ConstantThenDecay
from tfbnood.training.stream import batches
from tfbnood.tuning.choose import pseudo_aurocs

__all__ = ["OBJECTIVES", "SEARCHED", "HyperModel", "Study", "Trial", "run_trial"]

OBJECTIVES: Mapping[str, str] = MappingProxyType({"val_bits_per_dim": "min", "pseudo_auroc": "max"})
"""The objectives of a search, and their directions."""

_LEARNING_RATES = (3e-4, 3e-3)
_BATCH_SIZES = (32, 64, 128)
_SAVE_EVERY = 60  # seconds of training that a kill may waste


class HyperModel(keras_tuner.HyperModel):
    """A likelihood model with sizes near a preset's, for `tune` and for keras-tuner's own tuners.

    The space is `SEARCHED`, a learning rate between 3e-4 and 3e-3, and batches of 32, 64 or 128 images; its defaults
    are the preset.

    Args:
        model: `realnvp`, `vae` or `pixelcnn`.
        preset: the centre of the space, e.g. `cpu-grey`.
        image_shape: `(height, width, channels)`. Defaults to the preset's.
        seed: of the initial weights and of the noise in `fit`.

    Example:
        >>> import keras_tuner
        >>> HyperModel("vae", "tiny").build(keras_tuner.HyperParameters()).latents
        16
    """

    def __init__(
        self,
        model: str,
        preset: str,
        image_shape: tuple[int, int, int] | None = None,
        *,
        seed: int = 0,
    ):
        model_class(model)
        super().__init__(name=model)
        self.preset = named_preset(model, preset)
        self.image_shape = image_shape or self.preset.image_shape
        self.seed = seed

    def declare_hyperparameters(self, hp: Any) -> None:
        """Defines the space in `hp`, a `keras_tuner.HyperParameters`."""
        for field, factors in SEARCHED.get(self.name, {}).items():
            size = getattr(self.preset.config, field)
            hp.Choice(field, _multiples(size, factors), default=size)
        hp.Float("learning_rate", *_LEARNING_RATES, sampling="log", default=1e-3)
        hp.Choice("batch_size", list(_BATCH_SIZES), default=64)

    def network(self, hp: Any) -> LikelihoodModel:
        """Makes the model with these sizes, not compiled."""
        self.declare_hyperparameters(hp)
        sizes = {field: hp.get(field) for field in SEARCHED.get(self.name, {})}
        config = dataclasses.replace(self.preset.config, **sizes)
        return model_class(self.name)(
            image_shape=self.image_shape, seed=self.seed, **dataclasses.asdict(config)
        )

    def build(self, hp: Any) -> LikelihoodModel:
        """Makes the model, compiled with a constant learning rate."""
        network = self.network(hp)
        network.compile(Adam(hp.get("learning_rate"), global_clipnorm=100.0))
        return network

    def fit(self, hp: Any, model: LikelihoodModel, *args: Any, **kwargs: Any) -> Any:
        """Keras' `fit` with the batch size of these hyperparameters."""
        return model.fit(*args, batch_size=hp.get("batch_size"), **kwargs)


def _multiples(size: float, factors: tuple[float, ...]) -> list[Any]:
    """Distinct multiples of a size; for an integer size, rounded to at least 1."""
    if isinstance(size, float):
        return [size * factor for factor in factors]
    return sorted({max(1, round(size * factor)) for factor in factors})


@dataclasses.dataclass(frozen=True)
class Trial:
    """The result of one trial.

    Attributes:
        number: counted from 1.
        hyperparameters: sizes, learning rate and batch size.
        epochs: trained in total, including those of the trial it continued.
        continues: number of the trial whose weights it started from, for Hyperband.
        status: "completed" or "failed".
        value: of the objective, if completed.
        seconds: time taken; since the last start, if it was interrupted.
        error: the reason in one line, if failed.

    Example:
        >>> Trial(1, {"batch_size": 64}, epochs=10, continues=None, status="completed", value=4.1, seconds=12.0).value
        4.1
    """

    number: int
    hyperparameters: Mapping[str, Any]
    epochs: int
    continues: int | None
    status: str
    value: float | None
    seconds: float
    error: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """What all trials of a search share.

    Attributes:
        hypermodel: makes the models.
        train: images to train on.
        validation: images to measure on.
        epochs: of a full training run. The learning rate falls towards their end, as in `tfbnood train`, even if
            Hyperband stops earlier: a resumed run is then the same as one never stopped.
        objective: a key of `OBJECTIVES`.
        statistic: of the objective `pseudo_auroc`, not fitted.
        seed: of weights, noise, the order of images and pseudo-outliers.
        folder: of the files.
    """

    hypermodel: HyperModel
    train: np.ndarray
    validation: np.ndarray
    epochs: int
    objective: str
    statistic: Statistic
    seed: int
    folder: pathlib.Path

    def checkpoint(self, number: int) -> pathlib.Path:
        """The file of a trial's model, with its optimiser."""
        return self.folder / f"{number:04d}.keras"

    def steps_an_epoch(self, batch_size: int) -> int:
        """The number of full batches in the training images."""
        return len(self.train) // min(batch_size, len(self.train))


def run_trial(
    study: Study,
    number: int,
    hp: Any,
    *,
    out_of_time: Callable[[], bool],
    epochs: int | None = None,
    continues: int | None = None,
    progress: bool = False,
) -> Trial | None:
    """Trains and measures; an error makes a failed trial and is not raised.

    An interrupted trial resumes from its last checkpoint and ends with the same weights as an uninterrupted one.

    Args:
        study: what all trials share.
        number: of the trial.
        hp: its `keras_tuner.HyperParameters`.
        out_of_time: called after every epoch; True stops with a checkpoint and no result.
        epochs: in total. Defaults to the study's.
        continues: number of the trial whose model is trained further.
        progress: show a bar on a terminal.

    Returns:
        The trial, or None if the time limit was reached before it was done.
    """
    epochs = study.epochs if epochs is None else epochs
    began = time.monotonic()
    value, error = None, None
    try:
        network = _train(study, number, hp, epochs, continues, out_of_time, progress)
        if network is None:
            return None
        value = _measure(study, network)
    except Exception as problem:
        if isinstance(problem.__cause__, OSError):
            raise  # A full disk is not the trial's fault.
        error = _one_line(problem)
    names = (*SEARCHED[study.hypermodel.name], "learning_rate", "batch_size")
    return Trial(
        number=number,
        hyperparameters={name: hp.get(name) for name in names},
        epochs=epochs,
        continues=continues,
        status="completed" if error is None else "failed",
        value=value,
        seconds=round(time.monotonic() - began, 1),
        error=error,
    )


def _train(
    study: Study,
    number: int,
    hp: Any,
    epochs: int,
    continues: int | None,
    out_of_time: Callable[[], bool],
    progress: bool,
) -> LikelihoodModel | None:
    # In a separate thread, where Keras starts to count names anew: `tfbnood.training.train` explains why.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        network = thread.submit(_make_network, study, number, hp, continues).result()
    size = hp.get("batch_size")
    per_epoch = study.steps_an_epoch(size)
    saved = time.monotonic()
    for epoch in tqdm(
        range(int(network.optimizer.iterations) // per_epoch, epochs),
        desc=f"trial {number}",
        unit="epoch",
        leave=False,
        disable=None if progress else True,
    ):
        steps = batches(study.train, size, study.seed, first_step=epoch * per_epoch)
        network.fit(((batch,) for batch in steps), steps_per_epoch=per_epoch, verbose=0)
        stop = epoch + 1 < epochs and out_of_time()
        if stop or time.monotonic() - saved > _SAVE_EVERY:
            _save(network, study.checkpoint(number))
            saved = time.monotonic()
        if stop:
            return None
    _save(network, study.checkpoint(number))
    return network


def _save(network: LikelihoodModel, path: pathlib.Path) -> None:
    with atomic_path(path) as temporary:
        network.save(temporary)


def _make_network(study: Study, number: int, hp: Any, continues: int | None) -> LikelihoodModel:
    for earlier in (number, continues):
        if earlier is not None and study.checkpoint(earlier).exists():
            return keras.models.load_model(study.checkpoint(earlier))
    network = study.hypermodel.network(hp)
    steps = study.epochs * study.steps_an_epoch(hp.get("batch_size"))
    network.compile(Adam(ConstantThenDecay(hp.get("learning_rate"), steps), global_clipnorm=100.0))
    return network


def _measure(study: Study, network: LikelihoodModel) -> float:
    if study.objective == "val_bits_per_dim":
        value = float(network.bits_per_dim(study.validation).mean(dtype=np.float64))
    else:
        statistic = copy.copy(study.statistic).fit(network, study.train)
        aurocs = pseudo_aurocs(statistic, study.validation, seed=study.seed)
        value = float(np.mean(list(aurocs.values())))
    if not math.isfinite(value):
        raise TrainingDivergedError(f"{study.objective} is {value}")
    return value


def _one_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, TfbnoodError):
        return text
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
