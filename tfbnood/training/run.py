"""Training into a folder, with checkpoints that resume to the same weights as a run that was never stopped.

The weights after a step are a function of the settings alone: the order of the images comes from the seed and the
epoch, noise and dropout from the seed and the optimiser's step. A checkpoint is a `.keras` file with the weights and
the optimiser; nothing else has a state.
"""

import concurrent.futures
import contextlib
import math
import pathlib
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from tfbnood._core.files import atomic_path, write_json
from tfbnood._core.presets import check_size, is_too_large
from tfbnood._core.presets import preset as named_preset
from tfbnood._core.provenance import array_sha256, machine, versions
from tfbnood._core.runs import RunFolder
from tfbnood.data.sets import Dataset
from tfbnood.errors import TfbnoodError, TrainingDivergedError
from tfbnood.models import LikelihoodModel
from tfbnood.models.optimizer import Adam
from tfbnood.models.registry import model_class
from tfbnood.training.reporter import Reporter
from tfbnood.training.schedule import ConstantThenDecay
from tfbnood.training.stream import as_tf_data

__all__ = ["train"]


def train(
    dataset: Dataset,
    *,
    model: str,
    preset: str,
    steps: int,
    out: str | pathlib.Path,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    seed: int = 0,
    jit: bool = False,
    mutation: float = 0.0,
    any_size: bool = False,
    checkpoint_every: int = 100,
    progress: bool = True,
) -> LikelihoodModel:
    """Trains a preset on a data set, or resumes where an earlier call in the same folder was stopped.

    Writes `run.json` (settings, versions, result), `checkpoint.keras` (the latest state), `model.keras` (the trained
    model) and `logs/` (TensorBoard) into `out`.

    Args:
        dataset: from `tfbnood.data`.
        model: `realnvp`, `vae` or `pixelcnn`.
        preset: a size, e.g. `cpu-grey`.
        steps: optimiser steps in all, those before an interruption included.
        out: the run's folder.
        batch_size: Defaults to 64, the paper's.
        learning_rate: of Adam, before the decay of `ConstantThenDecay`.
        seed: of weights, noise and the order of images.
        jit: use XLA: a minute to compile, then faster.
        mutation: share of the values of every training image that random ones replace: a background model for the
            statistic `likelihood_ratio`.
        any_size: take images of any size. Defaults to False, which warns above 1.5 times the pixels that the preset is
            meant for and refuses more than 4 times as many, except for the presets `paper-*`.
        checkpoint_every: steps between checkpoints.
        progress: show a bar on a terminal, or a line per checkpoint elsewhere.

    Returns:
        The trained model, as loaded from `model.keras` by `keras.models.load_model`: without the optimiser.

    Raises:
        TfbnoodError: an argument is out of range, the images are too large for the preset, the folder holds something
            else than this run, another process trains in it, or it cannot be written.
        TrainingDivergedError: the loss is not finite any more; the last good checkpoint is kept.

    Example:
        >>> model = train(x, model="realnvp", preset="tiny", steps=200, out=folder / "run")  # doctest: +SKIP
        >>> detector = tfbnood.Detector(model, reference=x.train).calibrate(x.calibration)  # doctest: +SKIP
    """
    _check_arguments(model, preset, steps, batch_size, learning_rate, seed, checkpoint_every)
    if not 0 <= mutation < 1:
        raise TfbnoodError(f"mutation must lie in [0, 1). Received: mutation={mutation}")
    if not any_size:
        slow = check_size(model, preset, dataset.image_shape, argument="dataset")
        if slow:
            warnings.warn(slow, stacklevel=2)
    out = pathlib.Path(out)
    settings = {
        "data": dataset.name,
        "train_images": len(dataset.train),
        "train_sha256": array_sha256(dataset.train),
        "image_shape": list(dataset.image_shape),
        "model": model,
        "preset": preset,
        "steps": steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seed": seed,
        "jit": jit,
        "mutation": mutation,
    }
    place = RunFolder(out, "run.json", "run")
    # Version 0.1.0 had no mutation.
    with place.resume(settings, defaults={"mutation": 0.0}) as earlier:
        run = {"command": "", **settings, **earlier}
        return _train(dataset, settings, run, out, checkpoint_every, progress)


def _train(
    dataset: Dataset,
    settings: dict[str, Any],
    run: dict[str, Any],
    out: pathlib.Path,
    checkpoint_every: int,
    progress: bool,
) -> LikelihoodModel:
    # In a thread of its own, where Keras counts names from the start, as in a new process: the order in which
    # TensorFlow's graph optimiser adds numbers up depends on the names of layers.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        network = thread.submit(_restore, out, settings).result()
    step = int(network.optimizer.iterations)
    run.update(
        command=_command(settings, out),
        checkpoint_every=checkpoint_every,
        source=dataset.source,
        versions=versions(),
        machine=machine(),
    )
    write_json(out / "run.json", run)
    if step < settings["steps"]:
        _fit(network, dataset.train, run, out, progress)
    trained = _without_optimizer(network)
    with atomic_path(out / "model.keras") as path:
        trained.save(path)
    run["result"] = _result(trained, dataset)
    write_json(out / "run.json", run)
    return trained


def _fit(
    network: LikelihoodModel,
    images: np.ndarray,
    run: dict[str, Any],
    out: pathlib.Path,
    progress: bool,
) -> None:
    steps, every = run["steps"], run["checkpoint_every"]
    step = int(network.optimizer.iterations)
    began, seconds_before = time.monotonic(), run.get("seconds", 0.0)

    def save() -> None:
        with _ctrl_c_waits():
            with atomic_path(out / "checkpoint.keras") as path:
                network.save(path)
            run["seconds"] = round(seconds_before + time.monotonic() - began, 1)
            write_json(out / "run.json", run)

    with Reporter(step, steps, out / "logs", progress) as reporter:
        while step < steps:
            try:
                network.fit(
                    as_tf_data(images, run, step),
                    steps_per_epoch=min(every - step % every, steps - step),
                    verbose=0,
                    callbacks=[reporter],
                )
            except TrainingDivergedError:
                raise  # The weights are worthless: the checkpoint before them stays.
            except BaseException:
                # Ctrl-C above all, which Python delivers between two steps: every finished step is kept.
                save()
                raise
            save()
            step = int(network.optimizer.iterations)


@contextlib.contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Holds Ctrl-C back until the block is done, so that an impatient second one does not spoil it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only.
        return
    waiting = []
    before = signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if waiting:
            signal.raise_signal(waiting[0])


def _check_arguments(
    model: str,
    preset: str,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    checkpoint_every: int,
) -> None:
    model_class(model)
    named_preset(model, preset)
    counts = {"steps": steps, "batch_size": batch_size, "checkpoint_every": checkpoint_every}
    for name, value in counts.items():
        if value < 1:
            raise TfbnoodError(f"{name} must be at least 1. Received: {name}={value}")
    if not 0 < learning_rate < math.inf:
        raise TfbnoodError(
            f"learning_rate must be positive and finite. Received: learning_rate={learning_rate}"
        )
    if not 0 <= seed < 2**31:
        raise TfbnoodError(f"seed must lie in [0, 2**31). Received: seed={seed}")


def _restore(out: pathlib.Path, settings: dict[str, Any]) -> LikelihoodModel:
    checkpoint = out / "checkpoint.keras"
    if checkpoint.exists():
        try:
            return keras.models.load_model(checkpoint)
        except Exception as error:  # Keras raises many kinds for a damaged archive.
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise TfbnoodError(
                f"{checkpoint} cannot be loaded ({reason}); remove it to start again"
            ) from None
    network = model_class(settings["model"]).from_preset(
        settings["preset"],
        tuple(settings["image_shape"]),
        seed=settings["seed"],
        any_size=True,  # `train` has warned already.
    )
    network.compile(
        Adam(
            ConstantThenDecay(settings["learning_rate"], settings["steps"]), global_clipnorm=100.0
        ),
        jit_compile=settings["jit"],
    )
    return network


def _without_optimizer(network: LikelihoodModel) -> LikelihoodModel:
    """A copy to hand on: a third of the size, and it loads where only `tfbnood.models` is imported."""
    copy = type(network).from_config(network.get_config())
    copy.set_weights(network.get_weights())
    return copy


def _command(settings: dict[str, Any], out: pathlib.Path) -> str:
    """The shell line as it was typed, or for a call from Python one that does the same."""
    if pathlib.Path(sys.argv[0]).stem in ("tfbnood", "cli"):
        return shlex.join(["tfbnood", *sys.argv[1:]])
    names = ("data", "model", "preset", "steps", "batch_size", "learning_rate", "seed", "mutation")
    words = [w for name in names for w in (f"--{name.replace('_', '-')}", str(settings[name]))]
    words += ["--jit" if settings["jit"] else "--no-jit", "--out", str(out)]
    if is_too_large(settings["model"], settings["preset"], settings["image_shape"]):
        words.append("--any-size")
    return shlex.join(["tfbnood", "train", *words])


def _result(network: LikelihoodModel, dataset: Dataset, most: int = 1000) -> dict[str, Any]:
    # Data of one's own may have no test set; that is no reason to fail after the training.
    split = "test" if "test" in dataset.splits else "calibration"
    images = dataset.splits[split][:most]
    return {
        "split": split,
        "images": len(images),
        "bits_per_dim_evaluation_mode": float(network.bits_per_dim(images).mean()),
        "bits_per_dim_training_mode": float(network.bits_per_dim(images, training=True).mean()),
    }
