"""`tfbnood reproduce beyond`: what this package adds to the paper, measured against it and against raw pixels."""

import dataclasses
import json
import pathlib
import shlex
import sys
import time
from typing import Any

import numpy as np

from tfbnood import statistics
from tfbnood.batch_tests import BATCH_TESTS, batch_p_value
from tfbnood.calibration import conformal_p_values
from tfbnood.commands import outlier_set
from tfbnood.data import Dataset, load
from tfbnood.detector import Detector
from tfbnood.errors import TfbnoodError
from tfbnood.evaluation import evaluate, take
from tfbnood.evaluation_result import Evaluation
from tfbnood.files import atomic_path, write_json
from tfbnood.provenance import machine, versions
from tfbnood.reproduce.beyond_tables import markdown, plot
from tfbnood.reproduce.mmd import mmd_p_value
from tfbnood.reproduce.stages import Stages
from tfbnood.saving import load_model
from tfbnood.statistics import sample_of
from tfbnood.training import train

__all__ = ["SCALES", "Study", "beyond"]

CONTAMINATIONS = (1.0, 0.2, 0.05)
GREY = ("mnist", "kmnist", "omniglot", "rotation")
COLOUR = ("svhn", "tinyimagenet", "lsun")
MUTATION = 0.3  # Ren et al.'s for Fashion-MNIST; not tuned here
BATCH, SHARE, LEVEL = 64, 0.25, 0.05


@dataclasses.dataclass(frozen=True)
class Study:
    """A model on a data set and the sets it is to tell apart.

    Attributes:
        data: in-distribution data set.
        outliers: names as for `tfbnood evaluate`.
        model: `realnvp`, `vae` or `pixelcnn`.
        preset: its size.
        steps: of training.
        stages: what to measure, in this order.
        delta_shares: shares of outliers at which Δ with mixed samples is measured, which takes long.
        background: steps of the background model of the stage `ratio`.
    """

    data: str
    outliers: tuple[str, ...]
    model: str
    preset: str
    steps: int
    stages: tuple[str, ...] = ("deltas", "speed")
    delta_shares: tuple[float, ...] = (1.0,)
    background: int = 0

    @property
    def name(self) -> str:
        return f"{self.data}_{self.model}"


EVERYTHING = ("statistics", "batches", "mmd", "deltas", "speed")
FASHION: dict[str, Any] = {
    "stages": (*EVERYTHING, "draws", "ratio"),
    "delta_shares": CONTAMINATIONS[:2],
}
SCALES: dict[str, tuple[Study, ...]] = {
    "tiny": (
        Study("digits", ("inverted", "rotation"), "vae", "tiny", 200, **FASHION, background=100),
    ),
    "cpu": (
        Study("fashion_mnist", GREY, "realnvp", "cpu-grey", 3000, **FASHION, background=600),
        Study("fashion_mnist", GREY, "vae", "cpu-grey", 3000),
        Study("fashion_mnist", GREY, "pixelcnn", "cpu-grey", 400),
        Study("cifar10", COLOUR, "realnvp", "cpu-colour", 3000, EVERYTHING),
    ),
    "paper": (
        Study(
            "fashion_mnist", GREY, "realnvp", "paper-grey", 100_000, **FASHION, background=50_000
        ),
        Study("fashion_mnist", GREY, "vae", "paper-grey", 100_000),
        Study("fashion_mnist", GREY, "pixelcnn", "paper-grey", 100_000),
        Study("cifar10", COLOUR, "realnvp", "paper-colour", 100_000, EVERYTHING),
    ),
}


def beyond(
    out: str | pathlib.Path,
    *,
    scale: str = "cpu",
    n: int = 1000,
    batches: int = 100,
    data_dir: str | None = None,
    runs: str | pathlib.Path | None = None,
    only: str | None = None,
) -> dict[str, Any]:
    """Trains, evaluates, and writes `beyond.json`, `beyond.md` and `beyond.png` into a folder.

    Args:
        out: the folder. The same call again goes on after a kill.
        scale: `tiny`, `cpu` or `paper`.
        n: images of each set, at most.
        batches: batches of each kind for the whole-batch tests.
        data_dir: as for `tfbnood.data.load`.
        runs: folder of trainings, made there or already there. Defaults to `out/runs`.
        only: name of one study, such as `cifar10_realnvp`; the files are then of what is finished.
    """
    if scale not in SCALES:
        raise TfbnoodError(f"scale must be one of {', '.join(SCALES)}. Received: scale={scale!r}")
    names = [study.name for study in SCALES[scale]]
    if only is not None and only not in names:
        raise TfbnoodError(f"only must be one of {', '.join(names)}. Received: only={only!r}")
    out = pathlib.Path(out)
    runs = pathlib.Path(runs or out / "runs")
    chosen = [study for study in SCALES[scale] if only in (None, study.name)]
    total = sum(len(study.stages) for study in chosen)
    stages = Stages(out, {"what": "beyond", "scale": scale, "n": n, "batches": batches}, total)
    for study in chosen:
        _Work(study, stages, runs, n, batches, data_dir).run()
    results = {
        "command": shlex.join(["tfbnood", *sys.argv[1:]]),
        "scale": scale,
        "n": n,
        "batches": batches,
        "versions": versions(),
        "machine": machine(),
        "studies": {
            study.name: _finished(out / "stages", study)
            for study in SCALES[scale]
            if _finished(out / "stages", study)
        },
    }
    write_json(out / "beyond.json", results)
    with atomic_path(out / "beyond.md") as path:
        path.write_text(markdown(results))
    plot(results, out / "beyond.png")
    return results


class _Work:
    """The stages of one study. Model and data are loaded when the first stage needs them."""

    def __init__(
        self,
        study: Study,
        stages: Stages,
        runs: pathlib.Path,
        n: int,
        batches: int,
        data_dir: str | None,
    ):
        self.study, self.stages, self.runs = study, stages, runs
        self.n, self.batches, self.data_dir = n, batches, data_dir
        self._model: Any = None
        self._dataset: Dataset | None = None

    def run(self) -> None:
        work = {
            "statistics": self._statistics,
            "batches": self._batch_tests,
            "mmd": self._mmd,
            "deltas": self._deltas,
            "speed": self._speed,
            "draws": self._draws,
            "ratio": self._ratio,
        }
        for stage in self.study.stages:
            self.stages.run(f"{self.study.name}_{stage}", work[stage])

    @property
    def dataset(self) -> Dataset:
        if self._dataset is None:
            self._dataset = load(self.study.data, data_dir=self.data_dir)
        return self._dataset

    @property
    def model(self) -> Any:
        if self._model is None:
            self._model = self._trained(self.study.name, self.study.steps)
        return self._model

    def _trained(self, name: str, steps: int, mutation: float = 0.0) -> Any:
        folder = self.runs / name
        if (folder / "model.keras").is_file():
            run = json.loads((folder / "run.json").read_text())
            wanted = {"data": self.study.data, "model": self.study.model, "mutation": mutation}
            wanted |= {"preset": self.study.preset, "steps": steps}
            other = [key for key in wanted if run.get(key, 0.0) != wanted[key]]
            if other:
                raise TfbnoodError(
                    f"{folder} must be a training with {wanted}. Received: another {', '.join(other)}"
                )
            return load_model(folder / "model.keras")
        return train(
            self.dataset,
            model=self.study.model,
            preset=self.study.preset,
            steps=steps,
            out=folder,
            mutation=mutation,
        )

    def _outliers(self) -> dict[str, np.ndarray]:
        return {
            name: outlier_set(name, self.dataset, seed=0, data_dir=self.data_dir)
            for name in self.study.outliers
        }

    def _evaluate(self, model: Any, chosen: list, contamination: tuple[float, ...]) -> Evaluation:
        return evaluate(
            model,
            self.dataset.test,
            self._outliers(),
            statistics=chosen,
            contamination=contamination,
            n=self.n,
            reference=self.dataset.train,
            progress=True,
        )

    def _deltas(self) -> Any:
        chosen = [
            statistics.get("bn_delta"),
            statistics.get("bn_delta", mixing="moments"),
            statistics.get("bn_delta", mixing="moments", r1=0.0),
        ]
        return self._evaluate(self.model, chosen, self.study.delta_shares).to_dict()

    def _draws(self) -> Any:
        """Δ with less averaging over random batches for samples, and more for moments."""
        chosen = [
            statistics.get("bn_delta", draws=(1, 1)),
            statistics.get("bn_delta", mixing="moments", draws=(2, 8)),
        ]
        return self._evaluate(self.model, chosen, (1.0,)).to_dict()

    def _speed(self, most: int = 256) -> Any:
        """Images a second of both kinds of mixing, taken in turns in one process."""
        images = self.dataset.test[:most]
        ways = {
            mixing: statistics.get("bn_delta", mixing=mixing, draws=(1, 1)).fit(
                self.model, self.dataset.train
            )
            for mixing in ("samples", "moments")
        }
        seconds: dict[str, list[float]] = {mixing: [] for mixing in ways}
        for repeat in range(4):
            for mixing, statistic in ways.items():
                began = time.perf_counter()
                statistic.score(images)
                if repeat:  # The first one compiles.
                    seconds[mixing].append(time.perf_counter() - began)
        rates = {mixing: len(images) / float(np.median(times)) for mixing, times in seconds.items()}
        return {
            "images": len(images),
            "images_a_second": rates,
            "ratio": rates["moments"] / rates["samples"],
        }

    def _statistics(self) -> Any:
        chosen: list[Any] = ["ensemble", "bn_moments", "log_prob", "complexity", "t_perm"]
        chosen += ["pixel_pca", "pixel_knn", "typicality", "bn_delta_grouped"]
        chosen.append(statistics.get("bn_delta", mixing="moments"))
        if hasattr(self.model, "encode"):
            chosen.append("latent_fit")
        return self._evaluate(self.model, chosen, CONTAMINATIONS).to_dict()

    def _ratio(self) -> Any:
        background = self._trained(f"{self.study.name}_background", self.study.background, MUTATION)
        models = [self.model, background]
        return self._evaluate(models, ["likelihood_ratio"], CONTAMINATIONS).to_dict()

    def _batch_tests(self) -> Any:
        """Shares of batches with p ≤ 5 %, by test and kind of batch."""
        kinds = dict(self._kinds_of_batches())
        tests = dict(self._tests())
        return {
            "images_a_batch": BATCH,
            "share_of_outliers": SHARE,
            "level": LEVEL,
            "batches": {kind: len(found) for kind, found in kinds.items()},
            "found": {
                test: {
                    kind: float(np.mean([p_value(batch) <= LEVEL for batch in found]))
                    for kind, found in kinds.items()
                }
                for test, p_value in tests.items()
            },
        }

    def _mmd(self) -> Any:
        """The same for the usual drift test on the same batches."""
        reference = sample_of(self.dataset.train, 2000)
        shares = {
            kind: float(np.mean([mmd_p_value(batch, reference) <= LEVEL for batch in found]))
            for kind, found in self._kinds_of_batches()
        }
        return {"MMD on pixels": shares}

    def _kinds_of_batches(self):
        random = np.random.RandomState(0)
        inliers, labels = self.dataset.test, self.dataset.test_labels

        def some(images, count):
            return images[random.permutation(len(images))[:count]]

        yield "fresh", [some(inliers, BATCH) for _ in range(self.batches)]
        if labels is not None:
            classes = [inliers[labels == label] for label in np.unique(labels)]
            classes = [images for images in classes if len(images) >= BATCH]
            if classes:
                yield (
                    "one class only",
                    [some(classes[index % len(classes)], BATCH) for index in range(self.batches)],
                )
        bad = round(SHARE * BATCH)
        for name, images in self._outliers().items():
            images = take(images, self.n, 0)
            yield (
                name,
                [
                    np.concatenate([some(images, bad), some(inliers, BATCH - bad)])
                    for _ in range(self.batches)
                ],
            )

    def _tests(self):
        held_out = self.dataset.calibration
        image = Detector(self.model, "ensemble", reference=self.dataset.train).calibrate(held_out)
        scores: dict[int, np.ndarray] = {}  # Every test looks at the same batches.

        def of_images(test):
            def p_value(batch):
                if id(batch) not in scores:
                    scores[id(batch)] = image.score(batch)
                return batch_p_value(scores[id(batch)], image.calibration.null_of_images(1), test)

            return p_value

        for test in BATCH_TESTS:
            yield f"{test} of ensemble", of_images(test)
        others = [("bn_delta", {"mixing": "moments"}), ("typicality", {})]
        if hasattr(self.model, "encode"):
            others.append(("latent_fit", {}))
        for name, config in others:
            statistic = statistics.get(name, **config).fit(self.model, self.dataset.train)
            groups = min(200, len(held_out) // BATCH)
            null = np.array(
                [
                    statistic.score(held_out[BATCH * index : BATCH * (index + 1)]).mean()
                    for index in range(groups)
                ]
            )

            def p_value(batch, statistic=statistic, null=null):
                return float(conformal_p_values(statistic.score(batch).mean(), null))

            yield f"mean of {name}", p_value


def _finished(folder: pathlib.Path, study: Study) -> dict[str, Any]:
    """What the finished stages of a study gave."""
    paths = sorted(folder.glob(f"{study.name}_*.json"))
    found = {
        path.stem.removeprefix(f"{study.name}_"): json.loads(path.read_text())["result"]
        for path in paths
    }
    training = {**dataclasses.asdict(study), "shares": CONTAMINATIONS}
    return {"training": training, **found} if found else {}
