"""What the stages of one study share: its data and models, each loaded or trained on first use."""

import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np

from tfbnood._core.sampling import take
from tfbnood._core.units import bits_per_dim
from tfbnood.data.pools import outlier_set
from tfbnood.data.sets import Dataset, load
from tfbnood.reproduce.reuse import load_or_train, prepare_ensemble
from tfbnood.reproduce.studies import Study
from tfbnood.statistics.ensemble import Ensemble

__all__ = ["StudyContext"]


@dataclasses.dataclass(frozen=True)
class StudyContext:
    """A study and the data and models of its stages.

    Attributes:
        study: what to train and to distinguish.
        runs: folder of training runs, new or existing.
        n: maximum number of images per set; a study may lower it.
        batches: batches per kind for the whole-batch tests.
        seeds: independently trained models of `waic`.
        data_dir: as for `tfbnood.data.load`.
    """

    study: Study
    runs: pathlib.Path
    n: int
    batches: int
    seeds: int
    data_dir: str | None = None

    @functools.cached_property
    def dataset(self) -> Dataset:
        return load(self.study.data, data_dir=self.data_dir)

    @functools.cached_property
    def model(self) -> Any:
        return self.load_or_train(self.study.name, self.dataset, self.study.steps)

    @functools.cached_property
    def ensemble(self) -> Ensemble:
        statistic = prepare_ensemble(self.dataset.train, self.runs)
        statistic.fit(self.model, self.dataset.train, progress=True)
        return statistic

    @functools.cached_property
    def outliers(self) -> dict[str, np.ndarray]:
        return {
            name: outlier_set(name, self.dataset, seed=0, data_dir=self.data_dir)
            for name in self.study.outliers
        }

    @property
    def images_per_set(self) -> int:
        return min(self.n, self.study.n or self.n)

    def load_or_train(
        self, name: str, dataset: Dataset, steps: int, *, seed: int = 0, mutation: float = 0.0
    ) -> Any:
        """A model of the study's kind and size."""
        return load_or_train(
            dataset,
            self.runs / name,
            model=self.study.model,
            preset=self.study.preset,
            steps=steps,
            seed=seed,
            mutation=mutation,
            precision=self.study.precision,
        )

    def sample_sets(self) -> dict[str, np.ndarray]:
        """At most n images of every set, inliers first, in random order: files may be sorted by class."""
        sets = {}
        for name, images in {self.study.data: self.dataset.test, **self.outliers}.items():
            images = take(images, self.images_per_set, 0)
            sets[name] = images[np.random.RandomState(0).permutation(len(images))]
        return sets

    def to_bits_per_dim(self, log_probs: np.ndarray) -> np.ndarray:
        return bits_per_dim(log_probs, self.dataset.image_shape)
