"""A search in its folder: keras-tuner proposes trials, which are run and kept; a kill costs none of them."""

import contextlib
import dataclasses
import json
import logging
import math
import pathlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from tfbnood._core.files import atomic_path, write_json, writing
from tfbnood.errors import TfbnoodError
from tfbnood.saving import load_model
from tfbnood.tuning.trials import OBJECTIVES, Study, Trial, run_trial

__all__ = ["METHODS", "Search", "budget", "quiet", "ranked", "tell"]

METHODS = ("random", "hyperband", "bayesian")
"""How the next trial is chosen: keras-tuner's RandomSearch, Hyperband and BayesianOptimization."""


def ranked(trials: Sequence[Trial], objective: str) -> tuple[Trial, ...]:
    """The best first, ties in order of their numbers; failed ones last."""
    sign = 1 if OBJECTIVES[objective] == "min" else -1
    return tuple(
        sorted(trials, key=lambda one: math.inf if one.value is None else sign * one.value)
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """Asks keras-tuner for trials, runs those that are not done yet, and records the results.

    A search does not resume from keras-tuner's own files: they may be half written after a kill, and they lack part of
    the state of BayesianOptimization. Its choices are a function of its seed and the results so far, so that reporting
    these again restores its state.

    Attributes:
        study: what the trials share.
        settings: what the results depend on, JSON-safe.
        about: further content of the files: command, source of the images, versions, machine.
        out: folder of the files.
        done: the trials so far, by number; grows.
        deadline: of `time.monotonic`.
        progress: print a line per trial on standard error.
        events: what the chief of several processes has done so far, `["start", number, process]` and
            `["end", number]`; grows.
    """

    study: Study
    settings: dict[str, Any]
    about: dict[str, Any]
    out: pathlib.Path
    done: list[Trial]
    deadline: float
    progress: bool
    events: list[list[Any]] = dataclasses.field(default_factory=list)

    def run(self, lead: Callable[["Search", Any], bool] | None = None) -> bool:
        """Runs trials until there are enough or the time limit is reached; returns whether there are enough.

        Args:
            lead: lets other processes run them, given this search and the oracle. Defaults to running them here.
        """
        self.write(finished=False)
        if self.done:
            self.say(f"resuming after {len(self.done)} of {self.settings['trials']} trials")
        # For keras-tuner's own files, which are never read again.
        with writing("the temporary folder"), tempfile.TemporaryDirectory() as scratch, quiet():
            oracle = _make_oracle(self.study, self.settings, scratch)
            finished = self._run(oracle) if lead is None else lead(self, oracle)
        self.write(finished)
        if self.best is None:
            raise TfbnoodError(
                f"all {len(self.done)} trials failed; the last one: {self.done[-1].error}"
            )
        return finished

    def _run(self, oracle: Any) -> bool:
        while True:
            number = len(oracle.trials) + 1
            trial = self.find(number)
            if trial is None and self.out_of_time():
                return False
            with threadpool_limits(1):  # Matrices of a few rows: more threads are far slower.
                asked = oracle.create_trial("tuner")
            if asked.status != "RUNNING":
                return True
            if trial is None:
                hp = asked.hyperparameters
                trial = run_trial(
                    self.study,
                    number,
                    hp,
                    out_of_time=self.out_of_time,
                    progress=self.progress,
                    **budget(hp.values),
                )
                if trial is None:
                    return False
                self.record(trial)
            tell(oracle, asked, trial, self.study.objective)

    def find(self, number: int) -> Trial | None:
        """The trial of a number, if it is done."""
        return next((trial for trial in self.done if trial.number == number), None)

    def record(self, trial: Trial) -> None:
        """Records the result of a trial."""
        self.done.append(trial)
        self.done.sort(key=lambda one: one.number)
        self.write(finished=False)
        self.say(self._progress_line(trial))

    @property
    def best(self) -> Trial | None:
        """The best of the completed trials."""
        return next(
            (one for one in ranked(self.done, self.study.objective) if one.value is not None), None
        )

    def out_of_time(self) -> bool:
        """Whether the time limit is reached and there is a result."""
        return time.monotonic() > self.deadline and self.best is not None

    def write(self, finished: bool) -> None:
        """Writes the files, and removes models that are no longer needed."""
        best = self.best
        write_json(
            self.out / "tuning.json",
            {
                **self.about,
                "settings": self.settings,
                "finished": finished,
                "best": None if best is None else best.number,
                "trials": [dataclasses.asdict(trial) for trial in self.done],
                **({"events": self.events} if self.events else {}),
            },
        )
        if best is not None:
            self._write_best(best)
        if self.settings["method"] != "hyperband":  # Hyperband may continue any of the models.
            with writing(self.study.folder):
                for trial in self.done:
                    if trial != best:
                        self.study.checkpoint(trial.number).unlink(missing_ok=True)

    def _write_best(self, best: Trial) -> None:
        """Writes `best/`, a folder like those of `tfbnood train`."""
        run_file = self.out / "best" / "run.json"
        with contextlib.suppress(
            OSError, ValueError, LookupError, TypeError
        ):  # Unreadable: made again.
            if json.loads(run_file.read_text("utf-8"))["trial"] == best.number:
                return
        with writing(run_file):
            run_file.unlink(
                missing_ok=True
            )  # Without it, the folder is not a run while its model changes.
        network = load_model(self.study.checkpoint(best.number))
        # Without the optimiser: a third of the size.
        trained = type(network).from_config(network.get_config())
        trained.set_weights(network.get_weights())
        with atomic_path(self.out / "best" / "model.keras") as path:
            trained.save(path)
        settings, sizes = self.settings, dict(best.hyperparameters)
        batch_size, learning_rate = sizes.pop("batch_size"), sizes.pop("learning_rate")
        write_json(
            run_file,
            {
                **self.about,
                **{key: settings[key] for key in ("data", "train_images", "train_sha256")},
                **{key: settings[key] for key in ("image_shape", "model", "seed")},
                "preset": f"{settings['preset']} (tuned)",
                "sizes": sizes,
                "steps": best.epochs * self.study.steps_an_epoch(batch_size),
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "jit": False,
                "mutation": 0.0,
                "trial": best.number,
                "seconds": best.seconds,
                "result": {
                    "split": "validation, a part of train",
                    "images": settings["validation_images"],
                    self.study.objective: best.value,
                },
            },
        )

    def _progress_line(self, trial: Trial) -> str:
        trials, best = self.settings["trials"], self.best
        text = f"trial {trial.number}/{trials}: "
        if trial.value is None:
            text += f"failed: {trial.error}"
        else:
            text += f"{self.study.objective} {trial.value:.4g}"
        if best is not None:
            text += f" (best {best.value:.4g}, trial {best.number})"
        text += f"; {trial.seconds:.0f} s"
        if len(self.done) == trials:
            return text
        mean = sum(one.seconds for one in self.done) / len(self.done)
        left = min(mean * (trials - len(self.done)), max(0.0, self.deadline - time.monotonic()))
        return f"{text}; about {f'{left / 60:.0f} min' if left > 90 else f'{left:.0f} s'} left"

    def say(self, text: str) -> None:
        """Prints a line on standard error."""
        if self.progress:
            print(text, file=sys.stderr, flush=True)


def _make_oracle(study: Study, settings: dict[str, Any], scratch: str) -> Any:
    from keras_tuner import Objective, Oracle, oracles
    from keras_tuner.engine.base_tuner import BaseTuner

    trials = settings["trials"]
    options = {
        "objective": Objective(study.objective, OBJECTIVES[study.objective]),
        # keras-tuner treats 0 as no seed, and neighbouring seeds give nearly the same search.
        "seed": int(np.random.RandomState(study.seed).randint(1, 2**31 - 1)),
        "max_consecutive_failed_trials": trials + 1,
    }
    oracle: Oracle
    if settings["method"] == "hyperband":
        # Repeated until there are enough trials.
        oracle = oracles.HyperbandOracle(
            max_epochs=study.epochs, hyperband_iterations=trials, **options
        )
        oracle.max_trials = trials
    elif settings["method"] == "bayesian":
        oracle = oracles.BayesianOptimizationOracle(
            max_trials=trials, num_initial_points=max(3, trials // 4), **options
        )
    else:
        oracle = oracles.RandomSearchOracle(max_trials=trials, **options)
    space = oracle.get_space()
    study.hypermodel.declare_hyperparameters(space)
    oracle.update_space(space)
    oracle.verbose = 0
    BaseTuner(oracle, directory=scratch)  # An oracle gets its folder from a tuner.
    return oracle


def budget(values: dict[str, Any]) -> dict[str, Any]:
    """The epochs, and the trial to continue, that Hyperband requests; nothing for other methods."""
    if "tuner/epochs" not in values:
        return {}
    earlier = values.get("tuner/trial_id")
    # keras-tuner counts from 0.
    return {
        "epochs": values["tuner/epochs"],
        "continues": None if earlier is None else int(earlier) + 1,
    }


def tell(oracle: Any, asked: Any, trial: Trial, objective: str) -> None:
    """Reports the result of a trial to keras-tuner."""
    # After a restart on another machine, the last digits of its choices may differ from what was run.
    asked.hyperparameters.values.update(trial.hyperparameters)
    if trial.value is not None:
        oracle.update_trial(asked.trial_id, {objective: trial.value})
    asked.status = trial.status.upper()
    oracle.end_trial(asked)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings that the user cannot influence."""

    def is_news(record: logging.LogRecord) -> bool:
        # TensorFlow mistakes the new model of every trial for one that is recompiled.
        return "triggered tf.function retracing" not in record.getMessage()

    logger = tf.get_logger()
    logger.addFilter(is_news)
    try:
        with warnings.catch_warnings():
            # keras-tuner calls threading.currentThread.
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="keras_tuner")
            # Its Gaussian process is fitted to a handful of trials, and warns that these are few.
            warnings.filterwarnings(
                "ignore", category=ConvergenceWarning, module=r"sklearn\.gaussian_process"
            )
            yield
    finally:
        logger.removeFilter(is_news)
