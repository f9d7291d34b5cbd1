"""Training in a folder. A run that resumes from a checkpoint ends with the same weights as one never stopped.

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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from tfbnood._core.files import atomic_path, write_json
from tfbnood._core.precision import warn_of_precision
from tfbnood._core.presets import check_size, is_too_large
from tfbnood._core.presets import preset as named_preset
from tfbnood._core.provenance import array_sha256, machine, versions
from tfbnood._core.runs import RunFolder
from tfbnood.data.sets import Dataset
from tfbnood.errors import TfbnoodError, TrainingDivergedError
from tfbnood.models import LikelihoodModel
from tfbnood.models.optimizer import Adam
from tfbnood.models.registry import model_class
from tfbnood.training.distributed import LostWorkerError, Replicas, plan_replicas
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
    precision: str = "float32",
    mutation: float = 0.0,
    any_size: bool = False,
    checkpoint_every: int = 100,
    progress: bool = True,
    strategy: str | None = None,
    replicas: int | None = None,
    sync_moments: bool = False,
) -> LikelihoodModel:
    """Trains a preset on a data set, or resumes an interrupted call in the same folder.

    Writes `run.json` (settings, versions, result), `checkpoint.keras` (the latest state), `model.keras` (the trained
    model) and `logs/` (TensorBoard) into `out`.

    Args:
        dataset: from `tfbnood.data`.
        model: `realnvp`, `vae` or `pixelcnn`.
        preset: a size, e.g. `cpu-grey`.
        steps: optimiser steps in total, including those before an interruption.
        out: the run's folder.
        batch_size: images per step and replica. Defaults to 64, as in the paper.
        learning_rate: of Adam, before the decay of `ConstantThenDecay`.
        seed: of weights, noise and the order of images.
        jit: use XLA: a minute to compile, then faster.
        precision: "mixed_bfloat16" computes the networks' convolutions with bfloat16 numbers, which is faster if the
            processor supports them; otherwise a warning is given. The trained model always scores in float32. Defaults
            to "float32".
        mutation: share of every training image's values to replace by random ones, for a background model of the
            statistic `likelihood_ratio`.
        any_size: accept images of any size. Defaults to False, which warns above 1.5 times the pixels that the preset
            is meant for and refuses more than 4 times as many, except for the presets `paper-*`.
        checkpoint_every: steps between checkpoints.
        progress: show a bar on a terminal, or a line per checkpoint elsewhere.
        strategy: "mirrored" trains on several devices of this machine, "multiworker" on several machines: the same call
            on each, with the environment variable TF_CONFIG. The first of them, the chief, writes the files. Defaults
            to one replica.
        replicas: of "mirrored". Defaults to one per GPU.
        sync_moments: normalise with the moments of all replicas' images. Defaults to False: each replica uses those of
            its own `batch_size` images, the batch size that matters for the method.

    Returns:
        The trained model, as loaded from `model.keras` by `keras.models.load_model`: without the optimiser.

    Raises:
        TfbnoodError: if an argument is out of range, the images are too large for the preset, the folder holds anything
            but this run, another process trains in it, it cannot be written, or another worker has ended.
        TrainingDivergedError: if the loss is no longer finite; the last good checkpoint is kept.

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
    slow = warn_of_precision(precision)
    if slow:
        warnings.warn(slow, stacklevel=2)
    team = plan_replicas(strategy, replicas, sync_moments)
    _check_team(team, batch_size, len(dataset.train), jit)
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
        "precision": precision,
        "mutation": mutation,
        **team.settings,
    }
    if not team.is_chief:
        return _assist(team, dataset, settings, checkpoint_every, progress)
    place = RunFolder(out, "run.json", "run")
    # Version 0.1.0 had no mutation, no precision and no replicas.
    defaults = {"mutation": 0.0, "precision": "float32", **Replicas().settings}
    with place.resume(settings, defaults=defaults) as earlier:
        run = {"command": "", **settings, **earlier}
        return _train(team, dataset, settings, run, out, checkpoint_every, progress)


def _train(
    team: Replicas,
    dataset: Dataset,
    settings: dict[str, Any],
    run: dict[str, Any],
    out: pathlib.Path,
    checkpoint_every: int,
    progress: bool,
) -> LikelihoodModel:
    # In a separate thread, where Keras starts to count names anew, as in a new process: the order in which
    # TensorFlow's graph optimiser adds numbers depends on the names of layers.
    team.connect({**settings, "checkpoint_every": checkpoint_every}, progress=progress)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        network = thread.submit(_restore, team, out, settings).result()
    step = int(network.optimizer.iterations.numpy())
    run.update(
        command=_command(settings, out),
        checkpoint_every=checkpoint_every,
        source=dataset.source,
        versions=versions(),
        machine=machine(),
    )
    write_json(out / "run.json", run)
    if step < settings["steps"]:
        _fit(team, network, dataset.train, run, out, progress)
    trained = _drop_optimizer(network)
    with atomic_path(out / "model.keras") as path:
        trained.save(path)
    run["result"] = _result(trained, dataset)
    write_json(out / "run.json", run)
    return trained


def _assist(
    team: Replicas,
    dataset: Dataset,
    settings: dict[str, Any],
    checkpoint_every: int,
    progress: bool,
) -> LikelihoodModel:
    """Trains together with the chief, on another machine: the same steps, but no files."""
    team.connect({**settings, "checkpoint_every": checkpoint_every}, progress=progress)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        network = thread.submit(_restore, team, None, settings).result()
    fit = team.fitter(network, dataset.train, settings)
    for count in _counts(network, settings["steps"], checkpoint_every):
        fit(count, [])
    return _drop_optimizer(network)


def _fit(
    team: Replicas,
    network: LikelihoodModel,
    images: np.ndarray,
    run: dict[str, Any],
    out: pathlib.Path,
    progress: bool,
) -> None:
    steps, every = run["steps"], run["checkpoint_every"]
    step = int(network.optimizer.iterations.numpy())
    began, seconds_before = time.monotonic(), run.get("seconds", 0.0)

    def save() -> None:
        with _ctrl_c_waits():
            with atomic_path(out / "checkpoint.keras") as path:
                network.save(path)
            run["seconds"] = round(seconds_before + time.monotonic() - began, 1)
            write_json(out / "run.json", run)

    fit = (
        _make_fitter(network, images, run)
        if team.strategy is None
        else team.fitter(network, images, run)
    )
    with Reporter(step, steps, out / "logs", progress) as reporter:
        for count in _counts(network, steps, every):
            try:
                fit(count, [reporter])
            except (TrainingDivergedError, LostWorkerError):
                raise  # The weights are useless: keep the previous checkpoint.
            except BaseException:
                # Mostly Ctrl-C, which Python delivers between two steps: every finished step is kept.
                save()
                raise
            save()


def _counts(network: LikelihoodModel, steps: int, every: int) -> Iterator[int]:
    """The number of steps to each next checkpoint."""
    while (step := int(network.optimizer.iterations.numpy())) < steps:
        yield min(every - step % every, steps - step)


def _make_fitter(
    network: LikelihoodModel, images: np.ndarray, run: dict[str, Any]
) -> Callable[[int, Sequence[keras.callbacks.Callback]], None]:
    """The counterpart of `Replicas.fitter` for one replica, by Keras."""

    def fit(steps: int, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        data = as_tf_data(images, run, int(network.optimizer.iterations.numpy()))
        network.fit(data, steps_per_epoch=steps, verbose=0, callbacks=callbacks)

    return fit


@contextlib.contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Delays Ctrl-C until the block is done, so that an impatient second one does no damage."""
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


def _check_team(team: Replicas, batch_size: int, images: int, jit: bool) -> None:
    if team.strategy is None:
        return
    if jit:
        raise TfbnoodError(
            f"jit cannot be combined with a strategy. Received: strategy={team.strategy!r}"
        )
    if team.count * batch_size > images:
        raise TfbnoodError(
            f"batch_size times the replicas must be at most the {images} training images. "
            f"Received: {team.count} · {batch_size}"
        )


def _restore(team: Replicas, out: pathlib.Path | None, settings: dict[str, Any]) -> LikelihoodModel:
    """The network in the state of the checkpoint in `out`, or a new one."""

    def load(network: LikelihoodModel) -> None:
        if checkpoint is not None:
            with _explain_damage(checkpoint):
                network.load_weights(checkpoint)

    checkpoint = None if out is None else out / "checkpoint.keras"
    if checkpoint is not None and not checkpoint.exists():
        checkpoint = None
    if team.strategy is not None:
        return team.build(lambda: _make_network(settings), load)
    if checkpoint is None:
        return _make_network(settings)
    with _explain_damage(checkpoint):
        return keras.models.load_model(checkpoint)


@contextlib.contextmanager
def _explain_damage(checkpoint: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Keras raises many kinds for a damaged archive.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TfbnoodError(
            f"{checkpoint} cannot be loaded ({reason}); remove it to start again"
        ) from None


def _make_network(settings: dict[str, Any]) -> LikelihoodModel:
    network = model_class(settings["model"]).from_preset(
        settings["preset"],
        tuple(settings["image_shape"]),
        seed=settings["seed"],
        any_size=True,  # `train` has already warned.
        precision=settings["precision"],
    )
    network.compile(
        Adam(
            ConstantThenDecay(settings["learning_rate"], settings["steps"]), global_clipnorm=100.0
        ),
        jit_compile=settings["jit"],
    )
    return network


def _drop_optimizer(network: LikelihoodModel) -> LikelihoodModel:
    """A copy to keep: a third of the size, and it loads with only `tfbnood.models` imported.

    In float32 whatever the training precision: scores are then the same on every processor and in every export.
    """
    return network.in_precision("float32")


def _command(settings: dict[str, Any], out: pathlib.Path) -> str:
    """The command as typed, or for a call from Python an equivalent one."""
    if pathlib.Path(sys.argv[0]).stem in ("tfbnood", "cli"):
        return shlex.join(["tfbnood", *sys.argv[1:]])
    names = ("data", "model", "preset", "steps", "batch_size", "learning_rate", "seed", "mutation")
    words = [w for name in names for w in (f"--{name.replace('_', '-')}", str(settings[name]))]
    words += ["--jit" if settings["jit"] else "--no-jit", "--out", str(out)]
    if settings["precision"] != "float32":
        words += ["--precision", settings["precision"]]
    if settings["strategy"] is not None:
        words += ["--strategy", settings["strategy"]]
        words += ["--replicas", str(settings["replicas"])] * (settings["strategy"] == "mirrored")
        words += ["--sync-moments"] * settings["sync_moments"]
    if is_too_large(settings["model"], settings["preset"], settings["image_shape"]):
        words.append("--any-size")
    return shlex.join(["tfbnood", "train", *words])


def _result(network: LikelihoodModel, dataset: Dataset, most: int = 1000) -> dict[str, Any]:
    # A user's data may have no test set; that is no reason to fail after training.
    split = "test" if "test" in dataset.splits else "calibration"
    images = dataset.splits[split][:most]
    return {
        "split": split,
        "images": len(images),
        "precision": network.precision,
        "bits_per_dim_evaluation_mode": float(network.bits_per_dim(images).mean()),
        "bits_per_dim_training_mode": float(network.bits_per_dim(images, training=True).mean()),
    }
