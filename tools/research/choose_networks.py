"""How `ensemble` should combine a network's statistics: measured on pseudo-outliers and on held-out classes.

    .venv/bin/python tools/research/choose_networks.py --out tools/research/results/choose_networks.json

Takes any data set with labels, also your own npz: `--data mine`. Test images and outlier sets are not used: all
images are training images, and nothing was fitted to the scored ones. Candidates are weighted sums of the members'
normal scores, with and without the density that `ensemble` adds.
"""

import argparse
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.mixture import GaussianMixture

import tfbnood
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data.pseudo import ALL_KINDS, pseudo_outliers
from tfbnood.metrics import auroc
from tfbnood.statistics.base import scorer_of
from tfbnood.statistics.normal_scores import normal_scores, tables

SUMS = {"features": (1, 0), "bn_moments": (0, 1), "1:2": (1, 2), "1:1": (1, 1), "2:1": (2, 1)}
WEIGHTS = (0.75, 1.5, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["cifar10", "fashion_mnist", "scenes128"])
    parser.add_argument("--n", type=int, default=3000, help="training images (default: 3000)")
    parser.add_argument("--network", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    found = {name: measure(name, arguments) for name in arguments.data}
    print_means(found)
    if arguments.out:
        about = {"network": arguments.network, "size": arguments.size, "images": arguments.n}
        about |= {"versions": versions(), "machine": machine()}
        write_json(arguments.out, {**about, "auroc": found})


def measure(name: str, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """By kind of outliers, the AUROC of every candidate."""
    x = tfbnood.data.load(name, data_dir=arguments.data_dir)
    images, labels = x.train[: arguments.n], x.train_labels
    network = tfbnood.networks.load(arguments.network, size=arguments.size)
    spoiled = pseudo_outliers(images[-len(images) // 10 :], seed=0, kinds=ALL_KINDS)
    found = compared(network, images[: -len(images) // 10], spoiled)
    if labels is None:
        return found
    classes = np.unique(labels)
    half = len(classes) // 2
    splits = {
        "upper half": classes[half:],
        "lower half": classes[:half],
        "odd": classes[1::2],
        "even": classes[::2],
    }
    for title, held_out in splits.items():
        is_held_out = np.isin(labels[: len(images)], held_out)
        outliers = {f"{title} held out": images[is_held_out][:600]}
        found |= compared(network, images[~is_held_out], outliers)
    return found


def compared(
    network: Any, inliers: np.ndarray, outliers: dict[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """Members fitted to half of the inliers, the mixture to a quarter, and the last quarter scored."""
    order = np.random.RandomState(0).permutation(len(inliers))
    known, new, fresh = np.split(inliers[order], [len(order) // 2, len(order) * 3 // 4])
    members = [
        tfbnood.statistics.get(one).fit(network, known) for one in ("features", "bn_moments")
    ]
    score = scorer_of(members)
    columns = score(new)["score"]
    knots = tables(columns)

    def points(images: np.ndarray) -> np.ndarray:
        return normal_scores(tf.constant(score(images)["score"], tf.float32), *knots).numpy()

    own = normal_scores(tf.constant(columns, tf.float32), *knots).numpy()
    mixture = GaussianMixture(min(10, max(1, len(own) // 50)), reg_covar=1e-2, random_state=0)
    mixture.fit(own)
    usual = points(fresh)
    found = {}
    for name, images in outliers.items():
        both = np.concatenate([usual, points(images)])
        is_ood = np.arange(len(both)) >= len(usual)
        scores = {title: both @ np.array(counts) for title, counts in SUMS.items()}
        surprise = -mixture.score_samples(both)
        for weight in WEIGHTS:
            scores[f"density + {weight:g} · sum"] = surprise + weight * both.sum(axis=1)
        found[name] = {title: round(auroc(is_ood, one), 4) for title, one in scores.items()}
    return found


def print_means(found: dict[str, dict[str, dict[str, float]]]) -> None:
    titles = list(next(iter(next(iter(found.values())).values())))
    for title in titles:
        cells = []
        for name, by_set in found.items():
            for kind, is_kind in (("pseudo", False), ("held out", True)):
                values = [of[title] for one, of in by_set.items() if ("held out" in one) == is_kind]
                if values:
                    cells.append(f"{name} {kind} {np.mean(values):.3f}")
        print(f"{title:24} {'  '.join(cells)}")


if __name__ == "__main__":
    main()
