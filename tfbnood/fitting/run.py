"""Carries out a plan: reads, fits or trains, calibrates, and reports the outcome."""

import dataclasses
import datetime
import json
import os
import pathlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfbnood._core.files import write_json
from tfbnood.data.sets import Dataset, load
from tfbnood.fitting.plan import Plan, check_count
from tfbnood.networks.catalogue import OFFLINE, WEIGHTS

if TYPE_CHECKING:
    from tfbnood.detector import Detector

__all__ = ["Fitted", "fit"]

_LEAST_STEPS, _MOST_STEPS = 100, 20_000
_TRAINING_SHARE = (
    0.7  # of the minutes; the rest is for fitting without pretext, calibration and the page
)
_PRETEXT_MINUTES = 40  # from here on, there is time to train the networks of pretext


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """The result of `fit`.

    Attributes:
        detector: calibrated.
        dataset: the images, split into train, calibration and test.
        plan: what was chosen.
        seconds: time taken.

    Example:
        >>> Fitted(detector, x, tfbnood.fitting.make_plan("digits"), seconds=60.0).detector.image_shape
        (8, 8, 1)
    """

    detector: "Detector"
    dataset: Dataset
    plan: Plan
    seconds: float


def fit(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    data_dir: str | None = None,
    skip_unreadable: bool = False,
    seed: int = 0,
    say: Callable[[str], None] = print,
    progress: bool = True,
) -> Fitted:
    """Makes the planned detector and saves it as a folder.

    Training takes place in `OUT.training`, which stays until the detector is saved: the same call again resumes it.

    Args:
        plan: of `make_plan`.
        out: folder of the detector.
        data_dir: as for `tfbnood.data.load`.
        skip_unreadable: skip files that cannot be read.
        seed: of all random choices.
        say: called with one sentence per step.
        progress: show bars on a terminal.

    Example:
        >>> plan = tfbnood.fitting.make_plan("digits", network="none", minutes=0.01)
        >>> made = tfbnood.fitting.fit(plan, folder / "mine", say=lambda text: None)  # doctest: +SKIP
        >>> made.detector.image_shape  # doctest: +SKIP
        (8, 8, 1)
    """
    out = pathlib.Path(out)
    began = time.monotonic()
    dataset = load(
        plan.source,
        data_dir=data_dir,
        image_shape=plan.image_shape,
        skip_unreadable=skip_unreadable,
    )
    check_count(len(dataset.train) + len(dataset.calibration), plan.source)
    training = out.with_name(f"{out.name}.training")
    about: dict[str, Any] = {
        "data": plan.source,
        "date": datetime.date.today().isoformat(),
        "choices": list(plan.reasons),
        "train_images": len(dataset.train),
        "calibration_images": len(dataset.calibration),
    }
    if dataset.files is not None:
        about["files"] = dataset.files.as_dict()
    say(
        f"{len(dataset.train)} images to fit to, {len(dataset.calibration)} to calibrate on, "
        f"{len(dataset.test)} to check with."
    )
    if plan.network is not None:
        from tfbnood.networks import load as load_network

        model = load_network(plan.network, size=plan.size)
        source = WEIGHTS if plan.network == OFFLINE else "keras.applications"
        about["network"] = {
            "name": plan.network,
            "size": plan.size,
            "weights": f"ImageNet, {source}",
        }
        settings: dict[str, Any] = {}
    else:
        model = _train_model(plan, dataset, training, seed, say, progress)
        # pretext would train two more networks, which takes too long for most users.
        settings = {"pretext": plan.minutes >= _PRETEXT_MINUTES}
        about["model"] = {"name": "vae", "preset": plan.preset}
    from tfbnood.detector import (
        Detector,
    )  # Imports TensorFlow: only after unreadable files are found.

    detector = Detector(
        model,
        reference=dataset.train,
        tolerate=plan.tolerate,
        progress=progress,
        seed=seed,
        **settings,
    )
    detector.about = about
    detector.calibrate(dataset.calibration, progress=progress)
    detector.save(out)
    _remove_training(training)
    return Fitted(detector, dataset, plan, time.monotonic() - began)


def _train_model(
    plan: Plan,
    dataset: Dataset,
    folder: pathlib.Path,
    seed: int,
    say: Callable[[str], None],
    progress: bool,
) -> Any:
    """Trains a VAE for its share of the time; an interrupted training resumes with its original number of steps."""
    from tfbnood.training.run import train

    note = folder.with_name(f"{folder.name}.json")
    try:
        steps = int(json.loads(note.read_text())["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        steps = _estimate_steps(plan, dataset, seed)
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_json(note, {"steps": steps})
    say(f"Training for {steps} steps; after Ctrl-C, run the same command again to resume.")
    assert plan.preset is not None
    return train(
        dataset,
        model="vae",
        preset=plan.preset,
        steps=steps,
        out=folder,
        seed=seed,
        progress=progress,
    )


def _estimate_steps(plan: Plan, dataset: Dataset, seed: int) -> int:
    """The number of steps that fit into the time, estimated from a few."""
    from tfbnood.models.vae import VAE

    assert plan.preset is not None
    model = VAE.from_preset(plan.preset, plan.image_shape, seed=seed)
    model.compile()
    batch = dataset.train[:64]
    seconds = []
    for _ in range(4):  # The first compiles.
        began = time.monotonic()
        model.train_on_batch(batch)
        seconds.append(time.monotonic() - began)
    possible = _TRAINING_SHARE * 60 * plan.minutes / max(min(seconds[1:]), 1e-3)
    return int(min(max(possible, _LEAST_STEPS), _MOST_STEPS))


def _remove_training(training: pathlib.Path) -> None:
    """Removes the training folder; the detector now holds the model."""
    import shutil

    shutil.rmtree(training, ignore_errors=True)
    training.with_name(f"{training.name}.json").unlink(missing_ok=True)
