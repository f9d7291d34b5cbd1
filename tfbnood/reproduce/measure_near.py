"""One detector on one case of near outliers: AUROC by statistic and set, with its scores and its cost."""

import dataclasses
import time
from typing import Any

import numpy as np

from tfbnood import zoo
from tfbnood._core.sampling import sample_of, take
from tfbnood.data.pools import outlier_set
from tfbnood.data.sets import Dataset, load
from tfbnood.data.tinyimagenet_classes import without_cifar10_kinds
from tfbnood.errors import DataError
from tfbnood.metrics import estimates
from tfbnood.networks import Network
from tfbnood.networks import load as load_network
from tfbnood.reproduce.near_cases import Case, Setup
from tfbnood.reproduce.small_classifier import train_classifier
from tfbnood.statistics.base import EvidenceStatistic, scorer_of
from tfbnood.statistics.bn_moments import BnMoments
from tfbnood.statistics.bn_shift import BnShift
from tfbnood.statistics.ensemble import Ensemble
from tfbnood.statistics.registry import get

__all__ = ["Sets", "measure_near", "near_sets"]

BATCH, SHARE, LEVEL, BATCHES = 64, 0.25, 0.05, 200
_CALIBRATION = 1000


@dataclasses.dataclass(frozen=True)
class Sets:
    """The images of a case.

    Attributes:
        reference: images to fit to.
        labels: of the reference images, only for the small classifier; None if there are none.
        calibration: held out; may be empty.
        inliers: test images.
        inlier_labels: of the inliers, to make batches of one class; None if there are none.
        outliers: by name.
    """

    reference: np.ndarray
    labels: np.ndarray | None
    calibration: np.ndarray
    inliers: np.ndarray
    inlier_labels: np.ndarray | None
    outliers: dict[str, np.ndarray]


def near_sets(case: Case, n: int, data_dir: str | None = None) -> Sets:
    """Loads a case; at most n images of a test set."""
    dataset = load(case.data, data_dir=data_dir)
    if case.data == "screw":
        return _screws(dataset)
    train, labels = dataset.train, dataset.train_labels
    calibration, inliers, test_labels = dataset.calibration, dataset.test, dataset.test_labels
    outliers = {name: _outliers(name, dataset, data_dir) for name in case.outliers}
    if case.left_out:
        if labels is None or test_labels is None:
            raise DataError(f"{case.data} must have labels to leave classes out. Received: none")
        known = ~np.isin(labels, case.left_out)
        train, labels = train[known], labels[known]
        calibration = calibration[:0]  # Needed only for batches and joined detectors.
        known = ~np.isin(test_labels, case.left_out)
        outliers = {"left out": inliers[~known]}
        inliers, test_labels = inliers[known], test_labels[known]
    rows = take(np.arange(len(inliers)), n, 0)
    return Sets(
        train,
        labels,
        calibration,
        inliers[rows],
        None if test_labels is None else test_labels[rows],
        {name: take(images, n, 0) for name, images in outliers.items()},
    )


def measure_near(case: Case, setup: Setup, seed: int, n: int, data_dir: str | None) -> dict:
    """Fits a detector and measures it; JSON-safe."""
    sets = near_sets(case, min(n, setup.n or n), data_dir)
    some = sample_of(np.arange(len(sets.reference)), setup.reference or 1, seed)
    began = time.process_time()
    network = _network(setup, sets, seed)
    trained = time.process_time()
    statistics = _fitted(case, setup, network, sets.reference[some])
    fitted = time.process_time()
    score = scorer_of(statistics)
    whole = {"inliers": sets.inliers}
    if joined := case.detector is not None and seed == 0:
        whole["calibration"] = sets.calibration[:_CALIBRATION]
    scores = {key: score(images)["score"] for key, images in {**whole, **sets.outliers}.items()}
    scored = time.process_time()
    rows = []
    for name in sets.outliers:
        is_ood = np.repeat([False, True], [len(scores["inliers"]), len(scores[name])])
        for index, one in enumerate(statistics):
            both = np.concatenate([scores["inliers"], scores[name]])[:, index]
            found = estimates(is_ood, both, seed=0)["auroc"]
            rows.append(
                {
                    "statistic": one.name,
                    "set": name,
                    "auroc": found.value,
                    "interval": [found.low, found.high],
                    "images": len(scores[name]),
                }
            )
    images = sum(map(len, scores.values()))
    return {
        "reference": 0 if setup.reference == 0 else len(some),
        "inliers": len(sets.inliers),
        "rows": rows,
        "train_cpu_seconds": round(trained - began, 1),
        "fit_cpu_seconds": round(fitted - trained, 1),
        "images_per_cpu_second": round(images / (scored - fitted), 1),
        # The first statistic's, for the tables that join two detectors.
        "scores": {
            key: [float(f"{one:.5g}") for one in of[:, 0]] for key, of in scores.items() if joined
        },
        "batches": _batches(statistics, sets) if joined and setup.batches else {},
    }


def _network(setup: Setup, sets: Sets, seed: int) -> Any:
    if setup.network is None:
        return None
    if setup.network == "classifier":
        if sets.labels is None:
            raise DataError("a classifier needs labels. Received: images without labels")
        return Network(train_classifier(sets.reference, sets.labels, seed=seed))
    return load_network(setup.network, size=setup.size)


def _fitted(
    case: Case, setup: Setup, network: Any, reference: np.ndarray
) -> list[EvidenceStatistic]:
    """What is measured, the detector's own first."""
    if setup.reference == 0:
        statistic = zoo.load(str(case.detector)).statistic
        assert isinstance(statistic, Ensemble)
        return [statistic]
    settings = {"pretext": False} if network is None else {}
    ensemble = get("ensemble", **settings)
    assert isinstance(ensemble, Ensemble)
    ensemble.fit(network, reference, progress=True)
    found = [ensemble, *ensemble._members]
    if setup.local:
        # Screws lie anywhere, so that a comparison place by place makes no sense.
        local = get("bn_local", places=case.data != "screw")
        local.fit(network, reference, progress=True)
        assert isinstance(local, EvidenceStatistic)
        found.append(local)
    return found


def _batches(statistics: list[EvidenceStatistic], sets: Sets) -> dict[str, float]:
    """Share of batches of 64 that `bn_shift` finds at 5 %: fresh ones, of one class, and with a quarter of outliers."""
    shift = BnShift.of(next(one for one in statistics if isinstance(one, BnMoments)))
    calibration = sets.calibration[:_CALIBRATION]
    null = shift.group_null(calibration, (BATCH,))[BATCH]
    inliers = shift.residuals(sets.inliers)
    random = np.random.RandomState(0)

    def found(gram: np.ndarray, pools: list[tuple[np.ndarray, int]]) -> float:
        """Share of batches that are found; each has the given numbers of random rows of every pool.

        A batch's value is the squared length of its mean residual, as in `BnShift.score`: a mean over the Gram matrix.
        """
        alarms = 0
        for _ in range(BATCHES):
            rows = np.concatenate([random.permutation(pool)[:count] for pool, count in pools])
            value = gram[np.ix_(rows, rows)].mean(dtype=np.float64)
            alarms += (1 + (null >= value).sum()) / (len(null) + 1) <= LEVEL
        return alarms / BATCHES

    gram, every = inliers @ inliers.T, np.arange(len(inliers))
    shares = {"fresh": found(gram, [(every, BATCH)])}
    labels = sets.inlier_labels
    if labels is not None:
        classes = [every[labels == label] for label in np.unique(labels)]
        of_one = [found(gram, [(rows, BATCH)]) for rows in classes if len(rows) >= BATCH]
        if of_one:
            shares["one class"] = float(np.mean(of_one))
    bad = round(SHARE * BATCH)
    for name, images in sets.outliers.items():
        both = np.concatenate([inliers, shift.residuals(images)])
        others = np.arange(len(inliers), len(both))
        shares[name] = found(both @ both.T, [(every, BATCH - bad), (others, bad)])
    return shares


def _outliers(name: str, dataset: Dataset, data_dir: str | None) -> np.ndarray:
    if name == "tinyimagenet_other":
        other = load("tinyimagenet", data_dir=data_dir)
        assert other.test_labels is not None
        return other.test[without_cifar10_kinds(other.test_labels)]
    if name == "flowers128":  # Nothing is fitted to them: all 150 are used.
        return np.concatenate(list(load(name, data_dir=data_dir).splits.values()))
    return outlier_set(name, dataset, seed=0, data_dir=data_dir)


def _screws(dataset: Dataset) -> Sets:
    """Good ones held out from the training images: those of the test set are darker than all others."""
    good = np.concatenate([dataset.train, dataset.calibration])
    good = good[np.random.RandomState(0).permutation(len(good))]
    reference, held_back = good[: len(good) * 3 // 4], good[len(good) * 3 // 4 :]
    assert dataset.test_labels is not None
    defects = dataset.test[dataset.test_labels == 1]
    return Sets(reference, None, held_back[:0], held_back, None, {"defects": defects})
