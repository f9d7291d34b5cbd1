"""How often does a promised false-alarm rate hold? Many calibrations on real images' scores, plain and certified.

    .venv/bin/python tools/bench/certified.py --cache runs/class_mix --out results/certified.json

The scores are those of `class_mix.py`: 7,500 held-out and test images of each detector. A calibration is a random draw
of n of them, and its rate is counted in two ways: on all that were not drawn, and, for draws with replacement, on all
images, which are then the whole distribution and leave no noise in the rate. Within clusters, a promise is broken when
the rate of any cluster is too high.
"""

import argparse
import pathlib
import time
from typing import Any

import numpy as np
from class_mix import find_groups, share
from class_mix_scores import COUNTS, DETECTORS, load_scores

from tfbnood._core.files import write_json
from tfbnood._core.provenance import array_sha256, machine, versions
from tfbnood.calibration.certificates import certified_rank
from tfbnood.calibration.conformal import score_threshold

CONFIDENCE, CLUSTERS = 0.95, 5
CASES = ((0.05, 300), (0.05, 1000), (0.01, 300), (0.01, 1000))
IN_CLUSTERS = (0.05, 4000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="folder for scores")
    parser.add_argument("--draws", type=int, default=200, help="calibrations (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="result file, JSON")
    options = parser.parse_args()
    began, found = time.process_time(), {}
    for name in DETECTORS:
        arrays = load_scores(name, options.cache, seed=options.seed)
        scores = np.concatenate([arrays["calibration/score"], arrays["test/score"]])
        rows = find_groups(arrays, ("calibration", "test"), CLUSTERS).rows
        clusters = np.concatenate([rows["calibration"], rows["test"]])
        found[name] = {"scores_sha256": array_sha256(scores)}
        for fpr, n in CASES:
            key = f"fpr {fpr:g}, {n} images"
            found[name][key] = measure(scores, np.zeros(len(scores), int), fpr, n, options)
        fpr, n = IN_CLUSTERS
        key = f"fpr {fpr:g}, {n} images, {CLUSTERS} clusters"
        found[name][key] = measure(scores, clusters, fpr, n, options)
        print(name, found[name], flush=True)
        if options.out:
            settings = {"draws": options.draws, "seed": options.seed, "confidence": CONFIDENCE}
            about = {"settings": {**settings, "images": COUNTS}, "detectors": found}
            about |= {"cpu_seconds": time.process_time() - began}
            write_json(options.out, {**about, "versions": versions(), "machine": machine()})


def measure(
    scores: np.ndarray, clusters: np.ndarray, fpr: float, n: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Mean rate, and how often the rate, or that of any cluster, is above the promised one."""
    random = np.random.default_rng(options.seed)
    everyone = np.arange(len(scores))
    rates: dict[str, list[float]] = {}
    broken: dict[str, list[bool]] = {}
    for _ in range(options.draws):
        for how, replace in (("others", False), ("all", True)):
            drawn = random.choice(everyone, n, replace=replace)
            counted = everyone if replace else np.setdiff1d(everyone, drawn)
            for kind, alarms in judge(scores, clusters, drawn, counted, fpr).items():
                own = clusters[counted]
                each = [alarms[own == cluster].mean() for cluster in np.unique(own)]
                rates.setdefault(f"{kind}, {how}", []).append(alarms.mean())
                broken.setdefault(f"{kind}, {how}", []).append(max(each) > fpr)
    return {
        key: {"mean_rate": round(float(np.mean(of)), 4), "broken": share(np.array(broken[key]))}
        for key, of in rates.items()
    }


def judge(
    scores: np.ndarray, clusters: np.ndarray, drawn: np.ndarray, counted: np.ndarray, fpr: float
) -> dict[str, np.ndarray]:
    """Which of the counted images raise an alarm, by plain and by certified thresholds of the drawn ones."""
    kinds = {kind: np.zeros(len(counted), bool) for kind in ("plain", "certified")}
    names = np.unique(clusters)
    confidence = 1 - (1 - CONFIDENCE) / len(names)
    for cluster in names:
        null = scores[drawn[clusters[drawn] == cluster]]
        own = clusters[counted] == cluster
        certified = np.sort(null)[-certified_rank(len(null), fpr, confidence)]
        kinds["plain"][own] = scores[counted][own] > score_threshold(null, fpr)
        kinds["certified"][own] = scores[counted][own] > certified
    return kinds


if __name__ == "__main__":
    main()
