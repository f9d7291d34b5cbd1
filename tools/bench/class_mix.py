"""Alarms by class, and tests of whole batches when the mix of classes changes: before and after clusters.

    .venv/bin/python tools/bench/class_mix.py --cache runs/class_mix --out results/class_mix.json

Calibration images, test images and outliers are scored once and kept in `--cache`. Keys are numbers of clusters of the
reference images, found without labels: 1 is one null for all images, more are one null for each. Classes are only
counted by. The number of clusters is chosen on halves of the calibration images, by how far the classes' rates are from
the nominal one. What MMD and Δ do to such batches is quoted from results/paper.
"""

import argparse
import dataclasses
import json
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from class_mix_scores import COUNTS, DETECTORS, SIDE, load_scores
from scipy.stats import beta

from tfbnood._core.files import write_json
from tfbnood._core.provenance import array_sha256, machine, versions
from tfbnood.calibration.batch_tests import BATCH_TESTS, batch_p_value, batch_p_value_within
from tfbnood.calibration.conformal import conformal_p_values

PAPER = pathlib.Path(__file__).resolve().parents[2] / "results" / "paper" / "stages"
LEVEL, BATCH, SHARE = 0.05, 64, 0.25
CHOICES = (2, 5, 10, 15, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="folder for scores")
    parser.add_argument(
        "--clusters", type=int, nargs="+", default=[10, 20], help="(default: 10 20)"
    )
    parser.add_argument("--batches", type=int, default=200, help="of each kind (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS, default=list(DETECTORS))
    parser.add_argument("--out", help="result file, JSON")
    options = parser.parse_args()
    began = time.process_time()
    found = {}
    for name in options.detectors:
        arrays = load_scores(name, options.cache, seed=options.seed)
        found[name] = measure(arrays, DETECTORS[name][1], options)
        print(name, found[name], flush=True)
        if options.out:
            kept = ("clusters", "batches", "seed")
            settings = {key: getattr(options, key) for key in kept}
            settings |= {"level": LEVEL, "images_a_batch": BATCH, "share_of_outliers": SHARE}
            settings |= {"images": COUNTS, "side_of_the_network": SIDE}
            about = {"settings": settings, "cpu_seconds": time.process_time() - began}
            about |= {"versions": versions(), "machine": machine()}
            write_json(options.out, {**about, "detectors": found, "as_they_are": quote()})


@dataclasses.dataclass(frozen=True)
class Groups:
    """By set, the cluster of every image; and what the calibration's are."""

    rows: dict[str, np.ndarray]

    def nulls(self, scores: np.ndarray) -> list[np.ndarray]:
        """Calibration scores by cluster."""
        own = self.rows["calibration"]
        return [np.sort(scores[own == cluster]) for cluster in range(own.max() + 1)]


def find_groups(arrays: dict[str, np.ndarray], sets: Sequence[str], count: int) -> Groups:
    """Clusters as `tfbnood.calibration.clusters` finds them, in rows that are there already."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    pca = PCA(20, whiten=True, svd_solver="full").fit(arrays["reference/moments"])
    points = {name: pca.transform(arrays[f"{name}/moments"]) for name in sets}
    if count == 1:
        return Groups({name: np.zeros(len(rows), int) for name, rows in points.items()})
    reference = pca.transform(arrays["reference/moments"])
    means = KMeans(count, n_init=3, random_state=0).fit(reference)
    return Groups({name: means.predict(rows) for name, rows in points.items()})


def measure(
    arrays: dict[str, np.ndarray], outliers: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    sets = ("calibration", "test", *outliers)
    scores = {name: arrays[f"{name}/score"].astype(np.float64) for name in sets}
    groups = {str(k): find_groups(arrays, sets, k) for k in (1, *options.clusters)}
    return {
        "scores_sha256": {name: array_sha256(of) for name, of in scores.items()},
        "choice": choose(arrays, scores["calibration"]),
        "images": {
            kind: count_alarms(scores, of, arrays["test/label"], outliers)
            for kind, of in groups.items()
        },
        "batches": count_flagged(scores, groups, arrays["test/label"], outliers, options),
    }


def quote() -> dict[str, Any]:
    """Shares of batches that MMD on pixels and the means of batch statistics flag, by detector."""
    found: dict[str, Any] = {}
    for path in sorted(PAPER.glob("*_*_*.json")):
        name, _, stage = path.stem.removesuffix("_means").rpartition("_")
        if stage in ("mmd", "batch"):
            result = json.loads(path.read_text("utf-8"))["result"]
            found.setdefault(name, {}).update(result)
    return found


def choose(arrays: dict[str, np.ndarray], scores: np.ndarray) -> dict[str, dict[str, float]]:
    """By number of clusters, how far the classes' rates are from the nominal one, and the smallest; no outliers.

    Calibrated on a random half of the calibration images and counted on the other, 20 times.
    """
    labels = arrays["calibration/label"]
    found = {}
    for count in (1, *CHOICES):
        rows = find_groups(arrays, ("calibration",), count).rows["calibration"]
        errors = []
        for seed in range(20):
            order = np.random.default_rng(seed).permutation(len(scores))
            half = np.zeros(len(scores), bool)
            half[order[: len(scores) // 2]] = True
            p_values = np.ones(len(scores))
            for cluster in range(count):
                own = rows == cluster
                p_values[own & ~half] = conformal_p_values(scores[own & ~half], scores[own & half])
            alarms = p_values <= LEVEL
            rates = [alarms[~half & (labels == label)].mean() for label in np.unique(labels)]
            errors.append(np.mean(np.square(np.array(rates) - LEVEL)))
        found[str(count)] = {
            "root_mean_square": round(float(np.sqrt(np.mean(errors))), 4),
            "images_in_the_smallest": int(np.bincount(rows, minlength=count).min()),
        }
    return found


def count_alarms(
    scores: dict[str, np.ndarray], groups: Groups, labels: np.ndarray, outliers: Sequence[str]
) -> dict[str, Any]:
    """Alarms at the level: of all test images, by class, and of outliers."""
    nulls = groups.nulls(scores["calibration"])

    def alarms(name: str) -> np.ndarray:
        p_values = np.ones(len(scores[name]))
        for cluster, null in enumerate(nulls):
            own = groups.rows[name] == cluster
            p_values[own] = conformal_p_values(scores[name][own], null)
        return p_values <= LEVEL

    test = alarms("test")
    by_class = {int(label): share(test[labels == label]) for label in np.unique(labels)}
    rates = [one["share"] for one in by_class.values()]
    return {
        "calibration_images": [len(null) for null in nulls],
        "test": share(test),
        "by_class": by_class,
        "lowest_class": min(rates),
        "highest_class": max(rates),
        "found": {name: share(alarms(name)) for name in outliers},
    }


def count_flagged(
    scores: dict[str, np.ndarray],
    groups: dict[str, Groups],
    labels: np.ndarray,
    outliers: Sequence[str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Batches with p ≤ the level, by kind of batch, test and number of clusters; the same batches for all."""
    batches = make_batches(labels, {name: len(scores[name]) for name in outliers}, options)
    nulls = {count: of.nulls(scores["calibration"]) for count, of in groups.items()}
    found: dict[str, Any] = {}
    for kind, of_kind in batches.items():
        flagged: dict[str, list[bool]] = {}
        for batch in of_kind:
            values = np.concatenate([scores[name][rows] for name, rows in batch])
            for count, of in groups.items():
                clusters = np.concatenate([of.rows[name][rows] for name, rows in batch])
                for test in BATCH_TESTS:
                    if count == "1":
                        p_value = batch_p_value(values, nulls[count][0], test)
                    else:
                        p_value = batch_p_value_within(values, clusters, nulls[count], test)
                    flagged.setdefault(f"{test}, {count}", []).append(p_value <= LEVEL)
        found[kind] = {name: share(np.array(of)) for name, of in flagged.items()}
    return found


Batch = list[tuple[str, np.ndarray]]


def make_batches(
    labels: np.ndarray, outliers: dict[str, int], options: argparse.Namespace
) -> dict[str, list[Batch]]:
    """Rows of test images, and of outliers: mixed, of one class only, and a quarter outliers."""
    random = np.random.default_rng(options.seed + 1)
    everyone, count = np.arange(len(labels)), options.batches
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def draw(rows: np.ndarray, size: int = BATCH) -> np.ndarray:
        return random.choice(rows, size, replace=False)

    found: dict[str, list[Batch]] = {
        "clean": [[("test", draw(everyone))] for _ in range(count)],
        "one class": [[("test", draw(classes[i % len(classes)]))] for i in range(count)],
    }
    bad = round(SHARE * BATCH)
    for name, size in outliers.items():
        found[name] = [
            [("test", draw(everyone, BATCH - bad)), (name, draw(np.arange(size), bad))]
            for _ in range(count)
        ]
    return found


def share(flags: np.ndarray) -> dict[str, float]:
    """A share, with its 95 % interval by Clopper and Pearson."""
    n, k = len(flags), int(flags.sum())
    low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
    high = beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
    return {"share": round(k / n, 4), "low": round(float(low), 4), "high": round(float(high), 4)}


if __name__ == "__main__":
    main()
