"""Run by test_distributed.py in a process of its own, where the processor can be made two devices.

`python on_two_devices.py FOLDER` writes what it finds into the folder.
"""

import json
import pathlib
import signal
import sys

import numpy as np
import tensorflow as tf
from toys import Toy

from tfbnood._core.presets import preset
from tfbnood.data import load
from tfbnood.models import registry
from tfbnood.models.noise import training_noise
from tfbnood.models.optimizer import Adam
from tfbnood.models.replicas import synchronize_moments
from tfbnood.training import run as training
from tfbnood.training.distributed import _mirrored

OPTIONS = {
    "model": "vae",
    "preset": "tiny",
    "batch_size": 16,
    "learning_rate": 0.03,
    "seed": 3,
    "checkpoint_every": 10,
}


def values(variable) -> list[np.ndarray]:
    """Those of every replica."""
    return [np.asarray(one) for one in getattr(variable.value, "values", [variable.value])]


def fit(strategy, images, sync: bool) -> dict:
    """Keras' `fit` of a model that needs no noise, two steps."""
    with strategy.scope():
        model = Toy(images.shape[1:], **vars(preset("vae", "tiny").config))
        model.compile(Adam(1e-2, global_clipnorm=1.0))
    if sync:
        synchronize_moments(model)
    history = model.fit(images, batch_size=len(images) // 2, shuffle=False, verbose=0)
    every = [*model.variables, *model.optimizer.variables]
    unequal = [one.path for one in every if any((v != values(one)[0]).any() for v in values(one))]
    return {
        "loss": history.history["loss"],
        "weights": [values(one)[0].tolist() for one in every],
        "moving_variance": model.norm.moving_variance.numpy().tolist(),
        "unequal": unequal,
    }


def main(folder: pathlib.Path) -> None:
    two, one = _mirrored(2), tf.distribute.get_strategy()
    digits = load("digits")
    images = digits.train[:64]
    # By brightness, so that the halves of a batch have other moments than the whole.
    images = images[np.argsort(images.sum(axis=(1, 2, 3)), kind="stable")]
    found = {
        "one": fit(one, images, sync=False),
        "own": fit(two, images, sync=False),
        "synchronised": fit(two, images, sync=True),
        "seeds": [
            seed.numpy().tolist()
            for seed in two.experimental_local_results(
                two.run(lambda: training_noise(7, tf.constant(5)).seed)
            )
        ],
        "seed": training_noise(7, tf.constant(5)).seed.numpy().tolist(),
    }
    (folder / "found.json").write_text(json.dumps(found))

    registry.MODELS["vae"] = Toy
    options = {**OPTIONS, "steps": 20, "strategy": "mirrored", "replicas": 2, "progress": False}
    training.train(digits, out=folder / "whole", **options)

    class Stopping(training.Reporter):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if int(self.model.optimizer.iterations.numpy()) == 13:
                signal.raise_signal(signal.SIGINT)

    reporter, training.Reporter = training.Reporter, Stopping
    try:
        training.train(digits, out=folder / "stopped", **options)
    except KeyboardInterrupt:
        training.Reporter = reporter
    else:
        raise AssertionError("the training was not interrupted")
    training.train(digits, out=folder / "stopped", **options)
    del options["strategy"], options["replicas"]
    training.train(digits, out=folder / "alone", **{**options, "batch_size": 32})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
