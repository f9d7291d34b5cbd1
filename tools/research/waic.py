"""Why our WAIC differs from the paper's: its two terms apart, in both modes of batch normalisation.

    .venv/bin/python tools/research/waic.py fashion_mnist_realnvp --runs RUNS --out tools/research/results/waic.json

RUNS has the trainings of WAIC, as `tfbnood reproduce table2 --runs RUNS` leaves them. Nothing is chosen here. Training
mode scores batches of 64 images of one set. A result file that is there already keeps its other studies.
"""

import argparse
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfbnood._core.batching import map_batches
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import take
from tfbnood.data import load
from tfbnood.data.pools import outlier_set
from tfbnood.metrics import auroc
from tfbnood.reproduce.studies import SCALES, WAIC_MODELS
from tfbnood.saving import load_model
from tfbnood.scoring.frozen import frozen_log_prob


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="STUDY")
    parser.add_argument("--n", type=int, default=256, help="images of each set (default: 256)")
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="folder of trainings")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="result file, JSON")
    arguments = parser.parse_args()

    for study in (one for one in SCALES["cpu"] if one.name in arguments.names):
        dataset = load(study.data)
        sets = {study.data: dataset.test}
        sets |= {name: outlier_set(name, dataset, seed=0) for name in study.outliers}
        sets = {name: shuffled(take(images, arguments.n, 0)) for name, images in sets.items()}
        folders = [arguments.runs / f"{study.name}_waic_{1 + one}" for one in range(WAIC_MODELS)]
        models = [load_model(folder / "model.keras") for folder in folders]
        found = {
            "steps": study.waic_steps,
            "models": len(models),
            "images_per_set": arguments.n,
            **{
                mode: measure(models, sets, training=mode == "training")
                for mode in ("evaluation", "training")
            },
        }
        print(study.name, json.dumps(found, indent=1), flush=True)
        earlier = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        studies = {**earlier.get("studies", {}), study.name: found}
        about = {"versions": versions(), "machine": machine()}
        write_json(arguments.out, {**about, "studies": studies})


def shuffled(images: np.ndarray) -> np.ndarray:
    """In random order: files may be sorted by class, and training mode scores batches."""
    return images[np.random.RandomState(0).permutation(len(images))]


def measure(
    models: list[Any], sets: dict[str, np.ndarray], *, training: bool
) -> dict[str, dict[str, float]]:
    """By set, mean log p and mean variance over the models, in nats; of outliers, AUROC of either and of WAIC."""
    compiled = [frozen_log_prob(model) for model in models]
    # Rows are models.
    log_probs = {
        name: np.stack([score(log_prob, images, training) for log_prob in compiled])
        for name, images in sets.items()
    }
    # What is larger for outliers, if it works.
    terms = {
        name: {"mean": -of.mean(axis=0), "variance": of.var(axis=0, ddof=1)}
        for name, of in log_probs.items()
    }
    for of in terms.values():
        of["waic"] = of["mean"] + of["variance"]
    inliers, *outliers = terms
    result = {
        name: {"log_prob": float(-of["mean"].mean()), "variance": float(of["variance"].mean())}
        for name, of in terms.items()
    }
    for name in outliers:
        is_ood = np.repeat([False, True], [len(sets[inliers]), len(sets[name])])
        for term in terms[name]:
            scores = np.append(terms[inliers][term], terms[name][term])
            result[name][f"auroc_{term}"] = auroc(is_ood, scores)
    return result


def score(log_prob: Callable[..., Any], images: np.ndarray, training: bool) -> np.ndarray:
    return map_batches(lambda batch: log_prob(batch, training), images).astype(np.float64)


if __name__ == "__main__":
    main()
