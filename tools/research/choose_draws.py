"""How many random batches `bn_delta` should average over: AUROC on pseudo-outliers, made from held-out images.

    .venv/bin/python tools/research/choose_draws.py NAME --out tools/research/results/choose_draws.json

The rule, set in advance: the cheapest choice whose mean AUROC is within 0.01 of the best one's. Rotations and other
data sets are not used.
"""

import argparse
from typing import Any

import numpy as np

from tfbnood import zoo
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import sample_of
from tfbnood.data import load
from tfbnood.data.pseudo import pseudo_outliers
from tfbnood.metrics import auroc
from tfbnood.scoring.conditional import ConditionalLogProb, MixedMomentsLogProb

RATIOS = (0.1, 0.9)
CHOICES = ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16))  # draws at r1 and r2, by cost
KINDS = ("flip", "blend", "dark", "bright")  # noise, patches and blur are found by any choice
TOLERANCE = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", metavar="NAME", help="detector under savedmodels/")
    parser.add_argument(
        "--mixing", choices=("samples", "moments"), default="samples", help="(default: samples)"
    )
    parser.add_argument("--n", type=int, default=384, help="images of each kind (default: 384)")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()

    data = zoo.manifest(arguments.name)["training"]["data"]
    dataset, model = load(data), zoo.load(arguments.name).model
    conditional: ConditionalLogProb | MixedMomentsLogProb = (
        ConditionalLogProb(model, sample_of(dataset.train, 1024))
        if arguments.mixing == "samples"
        else MixedMomentsLogProb(model)
    )
    images = dataset.calibration[: 2 * arguments.n]
    outliers = pseudo_outliers(images[arguments.n :], seed=0)
    sets = {"inliers": images[: arguments.n], **{kind: outliers[kind] for kind in KINDS}}
    values = {name: _draws(conditional, pool) for name, pool in sets.items()}

    is_ood = np.repeat([False, True], arguments.n)
    table = []
    for choice in CHOICES:
        scores = {name: _delta(draws, choice) for name, draws in values.items()}
        aurocs = {
            kind: auroc(is_ood, np.concatenate([scores["inliers"], scores[kind]])) for kind in KINDS
        }
        passes = sum(
            draws / (ratio if arguments.mixing == "samples" else 1)
            for draws, ratio in zip(choice, RATIOS, strict=True)
        )
        table.append(
            {
                "draws": choice,
                "passes_an_image": passes,
                "auroc": aurocs,
                "mean": float(np.mean(list(aurocs.values()))),
            }
        )
        print(choice, f"{table[-1]['mean']:.3f}", {k: round(v, 3) for k, v in aurocs.items()})
    best = max(row["mean"] for row in table)
    chosen = next(row["draws"] for row in table if row["mean"] >= best - TOLERANCE)
    print("chosen:", chosen)
    if arguments.out:
        write_json(
            arguments.out,
            {
                "data": data,
                "mixing": arguments.mixing,
                "images": arguments.n,
                "rule": f"cheapest within {TOLERANCE} of the best mean AUROC",
                "table": table,
                "chosen": chosen,
                "versions": versions(),
                "machine": machine(),
            },
        )


def _draws(conditional: Any, images: np.ndarray) -> list[np.ndarray]:
    """By ratio, the likelihoods of every single draw, `[draws, n]`."""
    return [
        np.stack(
            [
                conditional(images, ratio=ratio, seed=1000 * draw, progress=True)
                for draw in range(max(choice[index] for choice in CHOICES))
            ]
        )
        for index, ratio in enumerate(RATIOS)
    ]


def _delta(draws: list[np.ndarray], choice: tuple[int, int]) -> np.ndarray:
    low, high = (values[:count].mean(axis=0) for values, count in zip(draws, choice, strict=True))
    return np.abs(low - high)


if __name__ == "__main__":
    main()
