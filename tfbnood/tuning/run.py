"""Searches with keras-tuner for the settings of a model, and without training for those of a statistic.

Test images, other data sets and rotations are never used: trials are measured on images held out from the training
images, and on outliers made from these. The calibration images are not used either, so that a detector made from the
best model has exact p-values.
"""

import dataclasses
import importlib.metadata
import json
import math
import os
import pathlib
import shlex
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfbnood._core.files import write_json
from tfbnood._core.presets import check_size, is_too_large
from tfbnood._core.presets import default_preset as _preset_for
from tfbnood._core.provenance import array_sha256, machine, versions
from tfbnood._core.runs import RunFolder
from tfbnood._core.tables import aligned
from tfbnood._core.tuner_process import TunerProcess, read_tuner_process
from tfbnood.data.sets import Dataset
from tfbnood.errors import DataError, TfbnoodError
from tfbnood.saving import load_model
from tfbnood.statistics.base import Statistic
from tfbnood.tuning.choose import (
    RankedStatistic,
    choose_statistic,
    judged,
)
from tfbnood.tuning.search import METHODS, Search, ranked
from tfbnood.tuning.trials import OBJECTIVES, HyperModel, Study, Trial

__all__ = ["Tuning", "choose_statistic_for_best", "ranking_table", "split", "tune"]

_VALIDATION_SHARE = 5  # one training image in five
_MOST_VALIDATION = 1000


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The results of a search so far; as text, a ranked table.

    Attributes:
        folder: of the files.
        objective: its name.
        trials: in the order they were run.
        finished: False if the time limit was reached before the last trial.

    Example:
        >>> from tfbnood.tuning import Trial
        >>> trial = Trial(1, {"batch_size": 64}, 10, None, status="completed", value=4.1, seconds=12.0)
        >>> print(Tuning(folder, "val_bits_per_dim", (trial,), finished=True))
        trial  val_bits_per_dim  epochs  batch_size  seconds
        1                4.1000      10          64       12
    """

    folder: pathlib.Path
    objective: str
    trials: tuple[Trial, ...]
    finished: bool

    @property
    def best(self) -> Trial:
        """The best completed trial; the first one wins ties."""
        return self.ranked[0]

    @property
    def ranked(self) -> tuple[Trial, ...]:
        """The best first, failed ones last."""
        return ranked(self.trials, self.objective)

    def __str__(self) -> str:
        names = list(self.trials[0].hyperparameters)
        table = [["trial", self.objective, "epochs", *names, "seconds"]]
        for trial in self.ranked:
            values = [f"{trial.hyperparameters[name]:.3g}" for name in names]
            value = "failed" if trial.value is None else f"{trial.value:.4f}"
            line = [str(trial.number), value, str(trial.epochs), *values, f"{trial.seconds:.0f}"]
            table.append([*line, f"  {trial.error}"] if trial.error else line)
        return aligned(table)


def tune(
    dataset: Dataset,
    *,
    model: str,
    out: str | pathlib.Path,
    preset: str | None = None,
    trials: int = 20,
    max_minutes: float | None = None,
    method: str = "random",
    objective: str = "val_bits_per_dim",
    statistic: str | Statistic = "auto",
    epochs: int = 10,
    seed: int = 0,
    any_size: bool = False,
    progress: bool = True,
) -> Tuning:
    """Searches for the sizes, learning rate and batch size of a model, or resumes an earlier search in the folder.

    Trials are trained on four fifths of `dataset.train`, or all but 1,000 images of it, and measured on the rest (see
    `split`). The same arguments give the same trials and values, even after a kill: finished trials are reported to
    keras-tuner again, and an interrupted one is run again, from its last checkpoint if it has one.

    Writes `tuning.json` (settings, versions, every trial), `best/` (the best model so far as a folder like those of
    `tfbnood train`, ready for `tfbnood calibrate`) and `trials/` (models that are still needed) into `out`.

    With keras-tuner's variables KERASTUNER_TUNER_ID, KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT, several
    processes search together: a chief, which writes the files, and workers, whose results have only their own trials.
    All share the folder `out`.

    Args:
        dataset: from `tfbnood.data`.
        model: `realnvp`, `vae` or `pixelcnn`.
        out: the search's folder.
        preset: the centre of the search space, see `HyperModel`. Defaults to one that trains on two cores:
            `cpu-colour`, `cpu-grey`, or `tiny` for grey images of at most 16×16 pixels.
        trials: number of trials in total.
        max_minutes: time limit; the search stops at the end of an epoch, but not before one trial is completed. The
            same call again resumes, with the same limit again. A chief lets running trials end. Defaults to no limit.
        method: "random" (default), "hyperband", which trains many models for few epochs and continues the best of
            them, or "bayesian", a quarter of whose trials are random.
        objective: "val_bits_per_dim" (default) minimises bits per dimension in evaluation mode; "pseudo_auroc"
            maximises the mean AUROC of `statistic` over the kinds of `tfbnood.pseudo.pseudo_outliers`.
        statistic: for `pseudo_auroc`: a name or a `Statistic`. Defaults to "auto", here without `pretext`, which is
            trained on pseudo-outliers and would find them whatever the model.
        epochs: of a full training run.
        seed: of the search, of weights, noise and the order of images.
        any_size: accept images of any size, as for `tfbnood.training.train`.
        progress: print a line per trial on standard error.

    Raises:
        TfbnoodError: if an argument is out of range, the images are too large for the preset, the folder holds anything
            but this search, another process searches in it, it cannot be written, or all trials failed.

    Example:
        >>> x = tfbnood.data.load("digits")  # doctest: +SKIP
        >>> found = tune(x, model="vae", trials=3, out="search")  # doctest: +SKIP
        >>> found.best.hyperparameters["channels"]  # doctest: +SKIP
    """
    _check_arguments(method, objective, trials, epochs, max_minutes, seed)
    out = pathlib.Path(out)
    preset = preset or _preset_for(*dataset.image_shape)
    hypermodel = HyperModel(model, preset, dataset.image_shape, seed=seed)
    if not any_size:
        slow = check_size(model, preset, dataset.image_shape, argument="dataset")
        if slow:
            warnings.warn(slow, stacklevel=2)
    train, validation = split(dataset.train, seed=seed)
    study = Study(
        hypermodel=hypermodel,
        train=train,
        validation=validation,
        epochs=epochs,
        objective=objective,
        statistic=judged(statistic),
        seed=seed,
        folder=out / "trials",
    )
    settings = {
        "data": dataset.name,
        "train_images": len(train),
        "train_sha256": array_sha256(train),
        "validation_images": len(validation),
        "image_shape": list(dataset.image_shape),
        "model": model,
        "preset": preset,
        "trials": trials,
        "method": method,
        "objective": objective,
        "statistic": [study.statistic.name, study.statistic.get_config()],
        "epochs": epochs,
        "seed": seed,
    }
    if objective != "pseudo_auroc":
        settings["statistic"] = None
    settings = json.loads(json.dumps(settings))  # as they will be read again: without tuples
    about = {
        "command": _command(settings, out),
        "source": dataset.source,
        "versions": {**versions(), "keras-tuner": importlib.metadata.version("keras-tuner")},
        "machine": machine(),
    }
    deadline = math.inf if max_minutes is None else time.monotonic() + 60 * max_minutes
    place = RunFolder(out, "tuning.json", "search", within="settings")
    process = read_tuner_process(os.environ)
    if process is not None and not process.is_chief:
        return _assist(study, settings, place, process, progress)
    with place.resume(settings) as earlier:
        done = _read_trials(place, earlier)
        search = Search(study, settings, about, out, done, deadline, progress)
        if process is None:
            finished = search.run()
        else:
            from tfbnood.tuning.parallel import lead, read_events

            search.events.extend(_read(place, read_events, earlier))
            finished = search.run(lambda search, oracle: lead(search, oracle, process))
    return Tuning(out, objective, tuple(done), finished)


def _assist(
    study: Study,
    settings: dict[str, Any],
    place: RunFolder,
    process: TunerProcess,
    progress: bool,
) -> Tuning:
    from tfbnood.tuning.parallel import assist

    own, content = assist(study, settings, place, process, progress=progress)
    return Tuning(place.folder, study.objective, tuple(own), content.get("finished", False))


def split(images: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits training images into those that trials are trained on and those they are measured on.

    The second part is a random fifth, at most 1,000.

    Example:
        >>> train, validation = split(np.zeros((20, 8, 8, 1), np.uint8), seed=0)
        >>> len(train), len(validation)
        (16, 4)
    """
    count = min(len(images) // _VALIDATION_SHARE, _MOST_VALIDATION)
    if count < 4:
        raise DataError(f"train must hold at least 20 images. Received: {len(images)}")
    order = np.random.RandomState(seed).permutation(len(images))
    return images[np.sort(order[count:])], images[np.sort(order[:count])]


def choose_statistic_for_best(
    out: str | pathlib.Path, dataset: Dataset, *, seed: int, progress: bool = True
) -> tuple[RankedStatistic, ...]:
    """Ranks statistics for the best model of a search, on the images that its trials were measured on.

    Writes `statistics.json` into `out`.

    Args:
        out: folder of `tune`.
        dataset: that of the search.
        seed: that of the search.
        progress: show a bar on a terminal.

    Example:
        >>> best, *others = choose_statistic_for_best("search", x, seed=0)  # doctest: +SKIP
        >>> tfbnood.Detector(model, best.name, reference=x.train, **best.settings)  # doctest: +SKIP
    """
    out = pathlib.Path(out)
    train, validation = split(dataset.train, seed=seed)
    model = load_model(out / "best" / "model.keras")
    found = choose_statistic(model, validation, reference=train, seed=seed, progress=progress)
    write_json(out / "statistics.json", [dataclasses.asdict(one) for one in found])
    return found


def ranking_table(found: Sequence[RankedStatistic]) -> str:
    """What `choose_statistic` found, as an aligned table.

    Example:
        >>> from tfbnood.tuning import RankedStatistic
        >>> print(ranking_table([RankedStatistic("log_prob", {}, "image", 0.75, {"blur": 0.5, "noise": 1.0})]))
        statistic   mean   blur  noise
        log_prob   0.750  0.500  1.000
    """
    kinds = list(found[0].aurocs)
    table = [["statistic", "mean", *kinds]]
    for one in found:
        settings = ", ".join(f"{key}={value}" for key, value in one.settings.items())
        label = f"{one.name}({settings})" if settings else one.name
        if one.mean_auroc is None:
            table.append([label, "failed", *([""] * len(kinds)), f"  {one.error}"])
        else:
            values = [one.mean_auroc, *(one.aurocs[kind] for kind in kinds)]
            table.append([label, *(f"{value:.3f}" for value in values)])
    return aligned(table)


def _check_arguments(
    method: str, objective: str, trials: int, epochs: int, max_minutes: float | None, seed: int
) -> None:
    for name, value, known in (("method", method, METHODS), ("objective", objective, OBJECTIVES)):
        if value not in known:
            raise TfbnoodError(f"{name} must be one of {', '.join(known)}. Received: {value!r}")
    for name, count in (("trials", trials), ("epochs", epochs)):
        if count < 1:
            raise TfbnoodError(f"{name} must be at least 1. Received: {name}={count}")
    if max_minutes is not None and not max_minutes > 0:
        raise TfbnoodError(f"max_minutes must be positive. Received: max_minutes={max_minutes}")
    if not 0 <= seed < 2**31:
        raise TfbnoodError(f"seed must lie in [0, 2**31). Received: seed={seed}")


def _read_trials(place: RunFolder, earlier: dict[str, Any]) -> list[Trial]:
    """The trials that are already done."""
    return _read(place, lambda found: [Trial(**one) for one in found["trials"]], earlier)


def _read(
    place: RunFolder, read: Callable[[dict[str, Any]], list], earlier: dict[str, Any]
) -> list:
    try:
        return read(earlier) if earlier else []
    except (LookupError, TypeError) as error:
        raise place.damaged(error) from None


def _command(settings: dict[str, Any], out: pathlib.Path) -> str:
    """An equivalent command."""
    names = ("data", "model", "preset", "trials", "method", "objective", "epochs", "seed")
    words = [word for name in names for word in (f"--{name}", str(settings[name]))]
    if settings["statistic"]:
        words += ["--statistic", settings["statistic"][0]]
    if is_too_large(settings["model"], settings["preset"], settings["image_shape"]):
        words.append("--any-size")
    return shlex.join(["tfbnood", "tune", *words, "--out", str(out)])
