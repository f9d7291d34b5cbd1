"""Carries a plan out: reads, fits or trains, calibrates, and says what came of it."""

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
    0.7  # of the minutes; the rest is for pretext-less fitting, calibration and the page
)
_PRETEXT_MINUTES = 40  # from here on the default's own networks have time to be trained


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """What `fit` made.

    Attributes:
        detector: calibrated.
        dataset: the images, cut into train, calibration and test.
        plan: what was chosen.
        seconds: it took.

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
    """Makes the detector of a plan and saves it as a folder.

    A training is kept beside it, in `OUT.training`, until the detector is saved: the same call again resumes it.

    Args:
        plan: of `make_plan`.
        out: folder of the detector.
        data_dir: as for `tfbnood.data.load`.
        skip_unreadable: leave files out that cannot be read.
        seed: of everything random.
        say: takes one sentence for each step.
        progress: show bars on a terminal.

    Example:
        >>> plan = tfbnood.fitting.make_plan("digits", network="none", minutes=0.01)
        >>> made = tfbnood.fitting.fit(plan, folder / "mine", say=lambda text: None)
        >>> made.detector.image_shape
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
        model = _trained(plan, dataset, training, seed, say, progress)
        # pretext trains two networks more, for longer than most have.
        settings = {"pretext": plan.minutes >= _PRETEXT_MINUTES}
        about["model"] = {"name": "vae", "preset": plan.preset}
    from tfbnood.detector import (
        Detector,
    )  # Only now: unreadable files are found without TensorFlow.

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
    _remove(training)
    return Fitted(detector, dataset, plan, time.monotonic() - began)


def _trained(
    plan: Plan,
    dataset: Dataset,
    folder: pathlib.Path,
    seed: int,
    say: Callable[[str], None],
    progress: bool,
) -> Any:
    """A VAE trained for the share of the minutes; an interrupted training resumes with the steps it began with."""
    from tfbnood.training.run import train

    note = folder.with_name(f"{folder.name}.json")
    try:
        steps = int(json.loads(note.read_text())["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        steps = _steps(plan, dataset, seed)
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_json(note, {"steps": steps})
    say(f"Training for {steps} steps; Ctrl-C and the same command again resume.")
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


def _steps(plan: Plan, dataset: Dataset, seed: int) -> int:
    """How many steps the time allows, by the time of a few."""
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


def _remove(training: pathlib.Path) -> None:
    """The training is in the detector now."""
    import shutil

    shutil.rmtree(training, ignore_errors=True)
    training.with_name(f"{training.name}.json").unlink(missing_ok=True)
