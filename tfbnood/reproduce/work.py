"""The stages: what is trained and measured for one study, each as JSON-safe values."""

import base64
import functools
import json
import math
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood import statistics
from tfbnood._core.batching import map_batches
from tfbnood._core.sampling import sample_of, take
from tfbnood.calibration.batch_tests import BATCH_TESTS, batch_p_value
from tfbnood.calibration.conformal import calibrate, conformal_p_values
from tfbnood.data.pools import outlier_set, photo_patches
from tfbnood.data.sets import Dataset, load
from tfbnood.errors import TfbnoodError
from tfbnood.evaluation.run import Evaluation, evaluate
from tfbnood.metrics import auroc, average_precision
from tfbnood.reproduce.kept import kept_ensemble
from tfbnood.reproduce.mmd import mmd_p_value
from tfbnood.reproduce.studies import CONTAMINATIONS, SHARES, Study
from tfbnood.saving import load_model
from tfbnood.scoring.conditional import ConditionalLogProb, frozen_log_prob
from tfbnood.statistics.ensemble import Ensemble
from tfbnood.training.run import train
from tfbnood.zoo import trained_model

__all__ = ["Work"]

MUTATION = 0.3  # Ren et al.'s for Fashion-MNIST; not tuned here
BATCH, SHARE, LEVEL = 64, 0.25, 0.05
EXAMPLES = 8  # samples that Figure 5 shows
# With one draw at r = 0.15, the random reference images move likelihoods more than a few test images do.
DRAWS = 4


class Work:
    """The stages of one study. Models and data are loaded when the first stage needs them.

    Args:
        study: what to train and to tell apart.
        runs: folder of trainings, made there or already there.
        n: images of each set, at most.
        batches: batches of each kind for the whole-batch tests.
        seeds: independently trained models of `waic`.
        data_dir: as for `tfbnood.data.load`.
    """

    def __init__(
        self,
        study: Study,
        *,
        runs: pathlib.Path,
        n: int,
        batches: int,
        seeds: int,
        data_dir: str | None,
    ):
        self.study, self.runs = study, runs
        self.n = min(n, study.n or n)
        self.batches, self.seeds, self.data_dir = batches, seeds, data_dir

    def run(self, stage: str) -> Any:
        """What a stage finds."""
        return {
            "training": self._training,
            "bits": self._bits,
            "ensemble": self._ensemble,
            "statistics": self._statistics,
            "deltas": self._deltas,
            "waic": self._waic,
            "shares": self._shares,
            "fooled": self._fooled,
            "batches": self._batch_tests,
            "batch_means": self._batch_means,
            "mmd": self._mmd,
            "speed": self._speed,
            "draws": self._draws,
            "ratio": self._ratio,
        }[stage]()

    @functools.cached_property
    def dataset(self) -> Dataset:
        return load(self.study.data, data_dir=self.data_dir)

    @functools.cached_property
    def model(self) -> Any:
        return self._trained(self.study.name, self.dataset, self.study.steps)

    @functools.cached_property
    def ensemble(self) -> Ensemble:
        statistic = kept_ensemble(self.dataset.train, self.runs)
        statistic.fit(self.model, self.dataset.train, progress=True)
        return statistic

    @functools.cached_property
    def outliers(self) -> dict[str, np.ndarray]:
        return {
            name: outlier_set(name, self.dataset, seed=0, data_dir=self.data_dir)
            for name in self.study.outliers
        }

    def _trained(
        self, name: str, dataset: Dataset, steps: int, *, seed: int = 0, mutation: float = 0.0
    ) -> Any:
        """A training of the runs' folder, or else one that ships with the package, or else a new one."""
        settings: dict[str, Any] = {"model": self.study.model, "preset": self.study.preset}
        settings |= {"steps": steps, "seed": seed, "mutation": mutation}
        wanted = {"data": dataset.name, **settings}
        folder = self.runs / name
        if (folder / "model.keras").is_file():
            run = json.loads((folder / "run.json").read_text())
            other = [key for key in wanted if run.get(key, 0) != wanted[key]]
            if other:
                raise TfbnoodError(
                    f"{folder} must be a training with {wanted}. Received: another {', '.join(other)}"
                )
            return load_model(folder / "model.keras")
        return trained_model(name, wanted) or train(dataset, out=folder, **settings)

    def _training(self) -> Any:
        """Size and quality of the model, for the page to say."""
        return {
            "parameters": int(sum(np.prod(one.shape) for one in self.model.trainable_weights)),
            "train_images": len(self.dataset.train),
            # Files by name: where they lie on one machine is of no use on another.
            "source": re.sub(r"[^\s,]*/(?=[^/\s,]+\.npz)", "", self.dataset.source),
        }

    def _log_prob(self, images: np.ndarray, training: bool) -> np.ndarray:
        """Bits per dimension of every image; training mode in batches of 64 of their own kind."""
        log_prob = frozen_log_prob(self.model)
        values = map_batches(lambda batch: log_prob(batch, training), images, progress=True)
        return self._bits_per_dim(values)

    def _bits_per_dim(self, log_probs: np.ndarray) -> np.ndarray:
        return -log_probs / (math.prod(self.dataset.image_shape) * math.log(2))

    def _shuffled(self) -> Iterator[tuple[str, np.ndarray]]:
        """At most n images of every set, inliers first, in random order: files may be sorted by class."""
        for name, images in {self.study.data: self.dataset.test, **self.outliers}.items():
            images = take(images, self.n, 0)
            yield name, images[np.random.RandomState(0).permutation(len(images))]

    def _bits(self) -> Any:
        """Bits per dimension of every image in both modes, by mode and set."""
        sets = dict(self._shuffled())
        return {
            mode: {
                name: _rounded(self._log_prob(images, mode == "training"))
                for name, images in sets.items()
            }
            for mode in ("evaluation", "training")
        }

    def _evaluate(self, model: Any, chosen: list, contamination: tuple[float, ...]) -> Evaluation:
        return evaluate(
            model,
            self.dataset.test,
            self.outliers,
            statistics=chosen,
            contamination=contamination,
            n=self.n,
            reference=self.dataset.train,
            progress=True,
        )

    def _ensemble(self) -> Any:
        """The default, and `pretext` as it is within: one training of its network for both."""
        return evaluate(
            None,  # Both are fitted.
            self.dataset.test,
            self.outliers,
            statistics=[self.ensemble, self.ensemble.member("pretext")],
            contamination=CONTAMINATIONS,
            n=self.n,
            progress=True,
        ).to_dict()

    def _statistics(self) -> Any:
        chosen: list[Any] = ["bn_moments", "log_prob", "complexity", "t_perm"]
        chosen += ["pixel_pca", "pixel_knn", "typicality", "bn_delta_grouped"]
        chosen.append(statistics.get("bn_delta", mixing="moments"))
        if hasattr(self.model, "encode"):
            chosen.append("latent_fit")
        if hasattr(self.model, "reconstruct"):
            chosen.append("reconstruction")
        return self._evaluate(self.model, chosen, CONTAMINATIONS).to_dict()

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

    def _waic(self) -> Any:
        """WAIC of independently trained models, or None where one model is all there is."""
        if self.seeds < 2:
            return None
        others = [
            self._trained(f"{self.study.name}_{seed}", self.dataset, self.study.steps, seed=seed)
            for seed in range(1, self.seeds)
        ]
        return self._evaluate([self.model, *others], ["waic"], CONTAMINATIONS).to_dict()

    def _ratio(self) -> Any:
        background = self._trained(
            f"{self.study.name}_background", self.dataset, self.study.background, mutation=MUTATION
        )
        models = [self.model, background]
        return self._evaluate(models, ["likelihood_ratio"], CONTAMINATIONS).to_dict()

    def _shares(self) -> Any:
        """By share r of test images in mixed batches: mean bits per dimension, and AUROC and AP of |S_0 − S_r|."""
        conditional = ConditionalLogProb(self.model, self.dataset.train)
        sets = dict(self._shuffled())
        values = {
            name: {
                share: conditional(images, ratio=share, draws=DRAWS, progress=True)
                for share in SHARES
            }
            for name, images in sets.items()
        }
        bits = {
            name: [float(self._bits_per_dim(of[share]).mean()) for share in SHARES]
            for name, of in values.items()
        }
        deltas = {
            name: {share: np.abs(of[0.0] - of[share]) for share in SHARES}
            for name, of in values.items()
        }
        inliers = deltas.pop(self.study.data)
        metrics: dict[str, dict[str, list[float]]] = {}
        for name, of in deltas.items():
            pools = [np.concatenate([inliers[share], of[share]]) for share in SHARES]
            is_ood = np.arange(len(pools[0])) >= len(inliers[0.0])
            metrics[name] = {
                "auroc": [auroc(is_ood, pool) for pool in pools],
                "average_precision": [average_precision(is_ood, pool) for pool in pools],
            }
        return {"shares": SHARES, "draws": DRAWS, "bits": bits, "metrics": metrics}

    def _fooled(self) -> Any:
        """Samples of a model of another data set under this one: bits in both modes, T_perm, and the nearest ones."""
        generator = self.study.generator
        assert generator is not None  # Only studies with one have this stage.
        model = self._trained(
            f"{generator.data}_{self.study.model}",
            self._generators_data(generator.data),
            generator.steps,
        )
        inliers = dict(self._shuffled())[self.study.data]
        t_perm = statistics.get("t_perm").fit(self.model, self.dataset.train)
        own_bits = self._log_prob(inliers, False)
        found: dict[str, Any] = {
            "data": generator.data,
            "fooling": generator.fooling,
            "bits": {self.study.data: _rounded(own_bits)},
            "t_perm": {self.study.data: _rounded(t_perm.score(inliers))},
            "means": {},
        }
        sets = {
            temperature: model.sample(generator.samples, temperature, seed=0, progress=True)
            for temperature in generator.temperatures
        }
        for temperature, samples in sets.items():
            bits = [self._log_prob(samples, training) for training in (False, True)]
            found["means"][str(temperature)] = [float(one.mean()) for one in bits]
            if temperature == generator.fooling:
                found["bits"]["samples"] = _rounded(bits[0])
                found["t_perm"]["samples"] = _rounded(t_perm.score(samples))
                found["t_perm"][generator.data] = _rounded(
                    t_perm.score(take(self._generators_data(generator.data).test, len(inliers), 0))
                )
                # Generated images alone: results are passed on, and real ones are not always ours to give.
                found["examples"] = _nearest(samples, bits[0], float(np.median(own_bits)))
        return found

    def _generators_data(self, name: str) -> Dataset:
        if name != "photos":
            return load(name, data_dir=self.data_dir)
        # Cut from photographs that are always there, for the smallest scale.
        train, test = (photo_patches(1000, self.dataset.image_shape, seed=seed) for seed in (1, 2))
        return Dataset("photos", "scikit-learn's photographs", {"train": train, "test": test})

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

    def _batch_tests(self) -> Any:
        """Shares of batches with p ≤ 5 %, by test of the images' p-values and kind of batch."""
        kinds = dict(self._kinds_of_batches())
        null = calibrate(self.ensemble, self.dataset.calibration).null_of_images(1)

        def p_value_by(test: str) -> Callable[[np.ndarray], float]:
            return lambda scores: batch_p_value(scores, null, test)

        scores = {
            kind: [self.ensemble.score(batch) for batch in found] for kind, found in kinds.items()
        }
        return {
            "images_a_batch": BATCH,
            "share_of_outliers": SHARE,
            "level": LEVEL,
            "batches": {kind: len(found) for kind, found in kinds.items()},
            "found": {
                f"{test} of ensemble": {
                    kind: _share_found(found, p_value_by(test)) for kind, found in scores.items()
                }
                for test in BATCH_TESTS
            },
        }

    def _batch_means(self) -> Any:
        """The same for the mean of statistics of whole batches, on the same batches."""
        held_out = self.dataset.calibration
        groups = [
            held_out[BATCH * index : BATCH * (index + 1)]
            for index in range(min(200, len(held_out) // BATCH))
        ]
        chosen = [("bn_delta", {"mixing": "moments"}), ("typicality", {})]
        if hasattr(self.model, "encode"):
            chosen.append(("latent_fit", {}))
        kinds = dict(self._kinds_of_batches())
        shares = {}
        for name, config in chosen:
            statistic = statistics.get(name, **config).fit(self.model, self.dataset.train)
            null = np.array([statistic.score(group).mean() for group in groups])

            def p_value(batch, statistic=statistic, null=null):
                return float(conformal_p_values(statistic.score(batch).mean(), null))

            shares[f"mean of {name}"] = {
                kind: _share_found(found, p_value) for kind, found in kinds.items()
            }
        return shares

    def _mmd(self) -> Any:
        """The same for the usual drift test."""
        reference = sample_of(self.dataset.train, 2000)
        shares = {
            kind: _share_found(found, lambda batch: mmd_p_value(batch, reference))
            for kind, found in self._kinds_of_batches()
        }
        return {"MMD on pixels": shares}

    def _kinds_of_batches(self) -> Iterator[tuple[str, list[np.ndarray]]]:
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
        for name, images in self.outliers.items():
            images = take(images, self.n, 0)
            yield (
                name,
                [
                    np.concatenate([some(images, bad), some(inliers, BATCH - bad)])
                    for _ in range(self.batches)
                ],
            )


def _share_found(batches: Sequence[np.ndarray], p_value: Callable[[np.ndarray], float]) -> float:
    return float(np.mean([p_value(batch) <= LEVEL for batch in batches]))


def _rounded(values: np.ndarray) -> list[float]:
    """For files: five digits are more than a picture shows."""
    return [float(f"{value:.5g}") for value in values]


def _nearest(images: np.ndarray, bits: np.ndarray, wanted: float) -> dict[str, Any]:
    """The images whose bits per dimension are nearest to a value."""
    order = np.argsort(np.abs(bits - wanted))[:EXAMPLES]
    pngs = [base64.b64encode(tf.io.encode_png(images[index]).numpy()).decode() for index in order]
    return {"png": pngs, "bits": _rounded(bits[order])}
