"""How `bn_moments` should judge an image's moments: AUROC on pseudo-outliers, made of held-out images alone.

    .venv/bin/python tools/choose_moments.py RUN --out results/choose_moments.json

Moments are taken once; every scorer is then tried on them. Rotations and other data sets are not looked at.
"""

import argparse
import json
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

from tfbnood.batching import map_batches
from tfbnood.data import load
from tfbnood.files import write_json
from tfbnood.metrics import auroc
from tfbnood.moments import GRIDS, image_moments
from tfbnood.provenance import machine, versions
from tfbnood.pseudo import pseudo_outliers
from tfbnood.saving import load_model
from tfbnood.statistics import sample_of

Scorer = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="folder of `tfbnood train`")
    parser.add_argument("--n", type=int, default=500, help="images of each kind (default: 500)")
    parser.add_argument("--reference", type=int, default=4000, help="(default: 4000)")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    data = json.loads((arguments.run / "run.json").read_text())["data"]
    dataset = load(data, data_dir=arguments.data_dir)
    model = load_model(arguments.run / "model.keras")
    held_out = dataset.calibration[: 2 * arguments.n]
    sets = {
        "reference": sample_of(dataset.train, arguments.reference),
        "inliers": held_out[: arguments.n],
        **pseudo_outliers(held_out[arguments.n :], seed=0),
    }
    table = {}
    for grid in GRIDS:
        taken = {name: moments(model, images, grid) for name, images in sets.items()}
        reference = taken.pop("reference")
        for label, scorer in scorers(reference):
            scores = {name: scorer(values) for name, values in taken.items()}
            inliers = scores.pop("inliers")
            is_ood = np.repeat([False, True], arguments.n)
            row = {
                kind: auroc(is_ood, np.concatenate([inliers, values]))
                for kind, values in scores.items()
            }
            table[f"grid {grid}: {label}"] = row
            print(f"grid {grid}: {label:60} {np.mean(list(row.values())):.3f}", flush=True)
            if grid > 1:
                break  # Only the first, the default, for the other grid.
    if arguments.out:
        about = {"data": data, "images": arguments.n, "reference_images": arguments.reference}
        about |= {"versions": versions(), "machine": machine()}
        means = {label: float(np.mean(list(row.values()))) for label, row in table.items()}
        write_json(arguments.out, {**about, "mean_auroc": means, "auroc": table})


def moments(model, images: np.ndarray, grid: int) -> np.ndarray:
    """Each image's own moments, `[n, f]`."""
    compiled = image_moments(model)
    return map_batches(lambda batch: compiled(batch)[1][GRIDS.index(grid)], images, progress=True)


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
