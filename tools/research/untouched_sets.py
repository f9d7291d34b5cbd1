"""AUROC of shipped detectors on sets never used to choose a setting: `ensemble` beside each of its members.

    .venv/bin/python tools/research/untouched_sets.py NAME … --out tools/research/results/untouched_sets.json

The sets of the tables were seen while settings were chosen, as README.md in this folder explains. These were not: test
images of the other data sets, in grey and 28×28 for garments, in colour and 32×32 for photographs, the negatives of the
in-distribution test images, and patches of scikit-learn's two photographs. The results are printed whatever they are;
whoever changes a setting because of them has to find new sets.
"""

import argparse

import numpy as np
import tensorflow as tf

from tfbnood import zoo
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import take
from tfbnood.data import Dataset, load
from tfbnood.data.pools import outlier_set
from tfbnood.metrics import auroc
from tfbnood.statistics.base import EvidenceStatistic, scorer_of
from tfbnood.statistics.ensemble import Ensemble

GREY = ("fashion_mnist", "mnist", "kmnist", "omniglot")
COLOUR = ("cifar10", "svhn", "tinyimagenet", "lsun")
MADE = ("inverted", "photos")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="detector under savedmodels/")
    parser.add_argument("--n", type=int, default=1000, help="images of each set (default: 1000)")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    found = {name: measured(name, arguments.n, arguments.data_dir) for name in arguments.names}
    if arguments.out:
        about = {"images": arguments.n, "versions": versions(), "machine": machine()}
        write_json(arguments.out, {**about, "auroc": found})


def measured(name: str, n: int, data_dir: str | None) -> dict[str, dict[str, float]]:
    """By set, the AUROC of `ensemble` and of each member alone."""
    ensemble = zoo.load(name).statistic
    dataset = load(zoo.manifest(name)["training"]["data"], data_dir=data_dir)
    return compared(ensemble, dataset.test, outliers(dataset, data_dir), n, name)


def compared(
    ensemble: Ensemble, inliers: np.ndarray, outliers: dict[str, np.ndarray], n: int, name: str
) -> dict[str, dict[str, float]]:
    """By set, the AUROC of an ensemble and of each member alone, on at most n images; printed as they are computed."""
    statistics: dict[str, EvidenceStatistic] = {"ensemble": ensemble}
    for member in ensemble._members:
        grid = member.get_config().get("grid")
        statistics[f"{member.name} grid {grid}" if grid else member.name] = member

    one_pass = scorer_of(list(statistics.values()))

    def scores(images: np.ndarray) -> np.ndarray:
        return one_pass(take(images, n, 0), progress=True)["score"]

    known = scores(inliers)
    found = {}
    for one, images in outliers.items():
        pool = np.concatenate([known, scores(images)])
        is_ood = np.arange(len(pool)) >= len(known)
        values = {label: auroc(is_ood, of) for label, of in zip(statistics, pool.T, strict=True)}
        best = max(list(values)[1:], key=values.__getitem__)
        print(f"{name} {one:14} {values['ensemble']:.3f}, {best} {values[best]:.3f}", flush=True)
        found[one] = values
    return found


def outliers(dataset: Dataset, data_dir: str | None) -> dict[str, np.ndarray]:
    """By name, images of the data set's shape."""
    others = COLOUR if dataset.image_shape[-1] == 1 else GREY
    return {
        **{one: as_shape(load(one, data_dir=data_dir).test, dataset.image_shape) for one in others},
        **{one: outlier_set(one, dataset, seed=0) for one in MADE},
    }


def as_shape(images: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """Converts grey to colour or colour to grey, then resizes with antialiasing."""
    convert = tf.image.rgb_to_grayscale if shape[-1] == 1 else tf.image.grayscale_to_rgb
    resized = tf.image.resize(convert(tf.constant(images)), shape[:2], antialias=True)
    return np.clip(np.rint(resized), 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
