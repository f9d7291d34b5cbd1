"""How `bn_moments` should judge an image's moments: AUROC on pseudo-outliers, made from held-out images.

    .venv/bin/python tools/research/choose_moments.py NAME … --out tools/research/results/choose_moments.json

Moments are computed once; every scorer is then tried on them. Rotations and other data sets are not used.
"""

import argparse
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

from tfbnood import zoo
from tfbnood._core.batching import map_batches
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import sample_of
from tfbnood.data import load
from tfbnood.data.pseudo import pseudo_outliers
from tfbnood.metrics import auroc
from tfbnood.scoring.moments import GRIDS, image_moments, moment_columns

Scorer = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="detector under savedmodels/")
    parser.add_argument("--n", type=int, default=500, help="images of each kind (default: 500)")
    parser.add_argument("--reference", type=int, default=4000, help="(default: 4000)")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name in arguments.names:
        data = zoo.manifest(name)["training"]["data"]
        dataset = load(data, data_dir=arguments.data_dir)
        held_out = dataset.calibration[: 2 * arguments.n]
        sets = {
            "reference": sample_of(dataset.train, arguments.reference),
            "inliers": held_out[: arguments.n],
            **pseudo_outliers(held_out[arguments.n :], seed=0),
        }
        for label, scores in choices(name, sets):
            inliers = scores.pop("inliers")
            is_ood = np.repeat([False, True], arguments.n)
            row = {
                kind: auroc(is_ood, np.concatenate([inliers, values]))
                for kind, values in scores.items()
            }
            table.setdefault(label, {})[data] = row
            print(f"{data} {label:60} {mean(row):.3f}", flush=True)
    if arguments.out:
        about = {"images": arguments.n, "reference_images": arguments.reference}
        about |= {"versions": versions(), "machine": machine()}
        means = {label: {one: mean(row) for one, row in of.items()} for label, of in table.items()}
        write_json(arguments.out, {**about, "mean_auroc": means, "auroc": table})


def mean(values: dict[str, float]) -> float:
    return float(np.mean(list(values.values())))


def choices(name: str, sets: dict[str, np.ndarray]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """By label, the scores of every set but the reference images; the default first."""
    model = zoo.load(name).model
    by_grid = {grid: moments(model, sets, grid) for grid in GRIDS}
    taken = by_grid[1]
    for label, scorer in scorers(taken["reference"]):
        yield f"grid 1: {label}", scored(scorer, taken)
    label, scorer = next(scorers(by_grid[2]["reference"]))
    yield f"grid 2: {label}", scored(scorer, by_grid[2])

    columns = moment_columns(model, sets["inliers"].shape[1:])
    layers = list(dict.fromkeys(layer for layer, _, _ in columns))
    third = {layer: 3 * place // len(layers) for place, layer in enumerate(layers)}
    parts = {
        **{
            f"{part} third of the layers": [third[of[0]] == index for of in columns]
            for index, part in enumerate(("first", "second", "last"))
        },
        "means alone": [of[1] == "mean" for of in columns],
        "log variances alone": [of[1] != "mean" for of in columns],
    }
    widths = [width for _, _, width in columns]
    for part, kept in parts.items():
        of = {kind: values[:, np.repeat(kept, widths)] for kind, values in taken.items()}
        label, scorer = next(scorers(of["reference"]))
        yield f"grid 1, {part}: {label}", scored(scorer, of)

    label, scorer = next(scorers(taken["reference"]))
    mirrored = moments(model, {kind: images[:, :, ::-1] for kind, images in sets.items()}, 1)
    again = zoo.load(name).model
    # Another draw of the dequantisation noise for this copy of the model.
    object.__setattr__(again, "log_prob", functools.partial(again.log_prob, seed=1))
    for more, other in (("its mirror image", mirrored), ("another noise", moments(again, sets, 1))):
        both = [scored(scorer, one) for one in (taken, other)]
        yield (
            f"grid 1, mean with {more}: {label}",
            {kind: both[0][kind] + both[1][kind] for kind in both[0]},
        )


def moments(model: Any, sets: dict[str, np.ndarray], grid: int) -> dict[str, np.ndarray]:
    """Each image's own moments, `[n, f]`, by set."""
    compiled = image_moments(model)

    def of(batch):
        return compiled(batch)[1][GRIDS.index(grid)]

    return {kind: map_batches(of, images, progress=True) for kind, images in sets.items()}


def scored(scorer: Scorer, taken: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {kind: scorer(values) for kind, values in taken.items() if kind != "reference"}


def scorers(reference: np.ndarray) -> Iterator[tuple[str, Scorer]]:
    """By label, a function from moments `[n, f]` to scores; the default first."""
    mean, scale = reference.mean(axis=0), np.maximum(reference.std(axis=0), 1e-3)

    def standard(values):
        return np.clip((values - mean) / scale, -30, 30)

    pca = PCA(400, random_state=0, svd_solver="randomized").fit(standard(reference))

    def residual(count, prepare=standard, axes=None):
        axes = pca.components_[:count] if axes is None else axes

        def score(values):
            ready = prepare(values)
            return np.square(ready - ready @ axes.T @ axes).sum(axis=1)

        return score

    for count in (50, 25, 100, 200, 400):
        yield f"standardised, residual after {count} components", residual(count)
    plain = PCA(50, random_state=0, svd_solver="randomized").fit(reference - mean)
    yield (
        "not standardised, residual after 50",
        residual(50, lambda values: values - mean, plain.components_),
    )
    inside = pca.transform(standard(reference))
    for count in (50, 100, 200, 400):
        shrunk = LedoitWolf().fit(inside[:, :count])
        yield (
            f"Mahalanobis in the first {count}, Ledoit–Wolf",
            lambda values, count=count, shrunk=shrunk: shrunk.mahalanobis(
                pca.transform(standard(values))[:, :count]
            ),
        )
    neighbours = NearestNeighbors(n_neighbors=5).fit(inside[:, :200])
    yield (
        "5 nearest neighbours in 200 components",
        lambda values: neighbours.kneighbors(pca.transform(standard(values))[:, :200])[0].mean(
            axis=1
        ),
    )
    mixture = GaussianMixture(10, covariance_type="diag", reg_covar=1e-2, random_state=0)
    mixture.fit(inside[:, :50])
    yield (
        "density of 10 Gaussians in 50 components",
        lambda values: -mixture.score_samples(pca.transform(standard(values))[:, :50]),
    )


if __name__ == "__main__":
    main()
