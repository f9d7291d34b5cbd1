"""Training into a folder, with checkpoints that resume to the same weights as a run that was never stopped.

The weights after a step are a function of the settings alone: the order of the images comes from the seed and the
epoch, noise and dropout from the seed and the optimiser's step. A checkpoint is a `.keras` file with the weights and
the optimiser; nothing else has a state.
"""

import json
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tfbnood.data import Dataset
from tfbnood.errors import TfbnoodError
from tfbnood.files import atomic_path, write_json
from tfbnood.models import VAE, LikelihoodModel, PixelCNN, RealNVP
from tfbnood.provenance import array_sha256, machine, versions

__all__ = ["MODELS", "batches", "train"]

MODELS: dict[str, type[LikelihoodModel]] = {"realnvp": RealNVP, "vae": VAE, "pixelcnn": PixelCNN}


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
    checkpoint_every: int = 100,
    progress: bool = True,
) -> LikelihoodModel:
    """Trains a preset on a data set, or goes on where an earlier call in the same folder was stopped.

    Writes `run.json` (settings, versions, result), `checkpoint.keras` (the latest state), `model.keras` (the trained
    model) and `logs/` (TensorBoard) into `out`.

    Args:
        dataset: from `tfbnood.data`.
        model: `realnvp`, `vae` or `pixelcnn`.
        preset: a size, e.g. `cpu-grey`.
        steps: optimiser steps in all, those of earlier calls included.
        out: the run's folder.
        batch_size: Defaults to 64, the paper's.
        learning_rate: of Adam.
        seed: of weights, noise and the order of images.
        jit: use XLA: a minute to compile, then faster.
        checkpoint_every: steps between checkpoints.
        progress: show a bar on a terminal, or a line a checkpoint elsewhere.

    Returns:
        The trained model, as loaded from `model.keras` by `keras.models.load_model`.
    """
    if model not in MODELS:
        raise TfbnoodError(f"model must be one of {', '.join(MODELS)}. Received: {model!r}")
    if steps < 1:
        raise TfbnoodError(f"steps must be at least 1. Received: steps={steps}")
    out = pathlib.Path(out)
    settings = {
        "data": dataset.name,
        "train_images": len(dataset.train),
        "train_sha256": array_sha256(dataset.train),
        "image_shape": list(dataset.image_shape),
        "model": model,
        "preset": preset,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seed": seed,
        "jit": jit,
    }
    run = _start_or_resume(out, settings)
    network = _restore(out, settings)
    step = int(network.optimizer.iterations)
    if step > steps:
        raise TfbnoodError(
            f"steps must be at least what {out} has done already, {step}. Received: steps={steps}"
        )
    run.update(steps=steps, source=dataset.source, versions=versions(), machine=machine())
    write_json(out / "run.json", run)

    began, seconds_before = time.monotonic(), run.get("seconds", 0.0)
    with _Reporter(step, steps, out / "logs", progress) as reporter:
        while step < steps:
            count = min(checkpoint_every - step % checkpoint_every, steps - step)
            try:
                network.fit(
                    _as_tf_data(dataset.train, batch_size, seed, step),
                    steps_per_epoch=count,
                    verbose=0,
                    callbacks=[reporter],
                )
            finally:
                # Also on Ctrl-C, which Python delivers between two steps: every finished step is kept.
                _save_checkpoint(network, out)
                run["seconds"] = round(seconds_before + time.monotonic() - began, 1)
                write_json(out / "run.json", run)
            step = int(network.optimizer.iterations)

    run["result"] = _result(network, dataset)
    with atomic_path(out / "model.keras") as path:
        network.save(path)
    write_json(out / "run.json", run)
    return network


def batches(
    images: np.ndarray, batch_size: int, seed: int, *, first_step: int = 0
) -> Iterator[np.ndarray]:
    """Yields shuffled batches for ever from `first_step` on; a step's batch depends on the seed alone."""
    batch_size = min(batch_size, len(images))
    per_epoch = len(images) // batch_size
    step = first_step
    while True:
        epoch = step // per_epoch
        order = np.random.RandomState([seed, epoch]).permutation(len(images))
        while step // per_epoch == epoch:
            start = step % per_epoch * batch_size
            yield images[order[start : start + batch_size]]
            step += 1


def _as_tf_data(images: np.ndarray, batch_size: int, seed: int, first_step: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(
        lambda: batches(images, batch_size, seed, first_step=first_step),
        # The whole shape: XLA compiles for it.
        output_signature=tf.TensorSpec((min(batch_size, len(images)), *images.shape[1:]), tf.uint8),
    )


def _start_or_resume(out: pathlib.Path, settings: dict[str, Any]) -> dict[str, Any]:
    path = out / "run.json"
    if not path.exists():
        if out.exists() and any(out.iterdir()):
            raise TfbnoodError(
                f"out must be a new or empty folder, or that of an earlier run. Received: {out}"
            )
        return {"command": " ".join(["tfbnood", *sys.argv[1:]]), **settings}
    try:
        run = json.loads(path.read_text())
    except ValueError as error:
        raise TfbnoodError(
            f"{path} is not readable as JSON ({error}); remove the folder to start again"
        ) from None
    other = [f"{key}={run.get(key)!r}" for key in settings if run.get(key) != settings[key]]
    if other:
        raise TfbnoodError(
            f"{out} holds a run with other settings: {', '.join(other)}; choose another folder"
        )
    return run


def _restore(out: pathlib.Path, settings: dict[str, Any]) -> LikelihoodModel:
    checkpoint = out / "checkpoint.keras"
    if checkpoint.exists():
        try:
            network = keras.models.load_model(checkpoint)
        except Exception as error:  # Keras raises many kinds for a damaged archive.
            raise TfbnoodError(
                f"{checkpoint} cannot be loaded ({error}); remove it to start again"
            ) from None
    else:
        network = MODELS[settings["model"]].from_preset(
            settings["preset"], tuple(settings["image_shape"]), seed=settings["seed"]
        )
    if not checkpoint.exists() or network.jit_compile != settings["jit"]:
        network.compile(
            keras.optimizers.Adam(settings["learning_rate"], global_clipnorm=100.0),
            jit_compile=settings["jit"],
        )
    return network


def _save_checkpoint(network: LikelihoodModel, out: pathlib.Path) -> None:
    with atomic_path(out / "checkpoint.keras") as path:
        network.save(path)


def _result(network: LikelihoodModel, dataset: Dataset, most: int = 1000) -> dict[str, Any]:
    images = dataset.test[:most]
    return {
        "test_images": len(images),
        "bits_per_dim_evaluation_mode": float(network.bits_per_dim(images).mean()),
        "bits_per_dim_training_mode": float(network.bits_per_dim(images, training=True).mean()),
    }


class _Reporter(keras.callbacks.Callback):
    """Tells a person (a bar, or a line a checkpoint when there is no terminal) and TensorBoard how training goes."""

    def __init__(self, step: int, steps: int, logs: pathlib.Path, progress: bool):
        super().__init__()
        self._terminal = progress and sys.stderr.isatty()
        self._lines = progress and not self._terminal
        self._steps = steps
        self._first, self._began = step, time.monotonic()
        self._bar = tqdm(total=steps, initial=step, unit="step", disable=not self._terminal)
        self._writer = tf.summary.create_file_writer(str(logs))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._bar.close()
        self._writer.close()

    def on_train_batch_end(self, batch, logs=None):
        self._bar.update()
        if batch % 10 == 0:
            self._bar.set_postfix_str(f"{logs['bits_per_dim']:.3f} bits/dim")

    def on_epoch_end(self, epoch, logs=None):
        step = int(self.model.optimizer.iterations)
        with self._writer.as_default(step=step):
            for name, value in logs.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
        if self._lines:
            speed = (time.monotonic() - self._began) / (step - self._first)
            left = (self._steps - step) * speed / 60
            print(
                f"step {step}/{self._steps}: {logs['bits_per_dim']:.3f} bits/dim, "
                f"{speed:.2f} s/step, {left:.0f} min left",
                file=sys.stderr,
                flush=True,
            )
