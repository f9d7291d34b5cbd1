"""Why a model does or does not find rotations: log p and Δ by interpolation, number of draws, and choice of moments.

    .venv/bin/python tools/research/rotations.py NAME --n 128 --out tools/research/results/rotations_NAME.json

Nothing is chosen here: it explains cells of the paper's tables after they were measured. "Fresh" moving moments are the
means of the moments of 20 batches of training images, instead of those of the training.
"""

import argparse
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbnood import zoo
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import sample_of, take
from tfbnood._core.units import bits_per_dim
from tfbnood.data import load, rotate
from tfbnood.data.pools import INTERPOLATIONS
from tfbnood.metrics import auroc
from tfbnood.scoring.conditional import ConditionalLogProb
from tfbnood.scoring.rules import batch_normalizations

DRAWS = (1, 2, 4, 8)
RATIO = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", metavar="NAME", help="detector under savedmodels/")
    parser.add_argument("--n", type=int, default=128, help="images of each set (default: 128)")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()

    training = zoo.manifest(arguments.name)["training"]
    dataset, model = load(training["data"]), zoo.load(arguments.name).model
    images = take(dataset.test, arguments.n, 0)
    sets = {"inliers": images}
    for kind in INTERPOLATIONS:
        sets[kind] = take(rotate(dataset.test, seed=0, interpolation=kind), arguments.n, 0)
    found: dict[str, Any] = {}
    for moments in ("moving", "fresh"):
        if moments == "fresh":
            set_fresh_moments(model, sample_of(dataset.train, 20 * 64))
        found[moments] = measure(model, sets, sample_of(dataset.train, 1024))
        for line in found[moments].items():
            print(moments, *line, flush=True)
    if arguments.out:
        about = {"detector": arguments.name, "training": training, "images_per_set": len(images)}
        about |= {"ratio": RATIO, "versions": versions(), "machine": machine()}
        write_json(arguments.out, {**about, "result": found})


def measure(model: Any, sets: dict[str, np.ndarray], reference: np.ndarray) -> dict[str, Any]:
    """Bits per dimension in evaluation mode and in mixed batches, and AUROC of log p and of Δ by draws."""
    conditional = ConditionalLogProb(model, reference)
    # Rows are draws.
    still = {name: conditional(pool, ratio=0.0) for name, pool in sets.items()}
    moved = {
        name: np.stack([conditional(pool, ratio=RATIO, seed=seed) for seed in range(max(DRAWS))])
        for name, pool in sets.items()
    }
    shape = next(iter(sets.values())).shape[1:]
    result: dict[str, Any] = {
        name: {
            "bits_evaluation": float(bits_per_dim(still[name], shape).mean()),
            "bits_mixed": float(bits_per_dim(moved[name], shape).mean()),
            # The variation between batches of the same images, which averaging over draws removes.
            "bits_sd_over_draws": float(bits_per_dim(moved[name], shape).std(axis=0).mean()),
        }
        for name in sets
    }
    is_ood = np.repeat([False, True], len(still["inliers"]))
    for name in INTERPOLATIONS:
        result[name]["auroc_log_prob"] = auroc(is_ood, -np.append(still["inliers"], still[name]))
        result[name]["auroc_delta"] = {
            str(draws): auroc(
                is_ood,
                np.concatenate(
                    [np.abs(still[of] - moved[of][:draws].mean(axis=0)) for of in ("inliers", name)]
                ),
            )
            for draws in DRAWS
        }
    return result


def set_fresh_moments(model: Any, images: np.ndarray) -> None:
    """Sets the moving moments to the mean of the moments of batches of these images, in training mode."""
    layers = batch_normalizations(model)
    variables = [one for layer in layers for one in (layer.moving_mean, layer.moving_variance)]
    momenta = [layer.momentum for layer in layers]
    totals = [np.zeros(one.shape) for one in variables]
    for layer in layers:
        layer.momentum = 0.0  # The moving moments are then those of the last batch.

    @tf.function(autograph=False)
    def moments_of(batch):
        with keras.StatelessScope() as scope:
            model.log_prob(batch, training=True)
        return [scope.get_current_value(one) for one in variables]

    batches = np.split(images, range(64, len(images), 64))
    for batch in batches:
        for total, value in zip(totals, moments_of(batch), strict=True):
            total += value.numpy() / len(batches)
    for variable, total in zip(variables, totals, strict=True):
        variable.assign(total)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


if __name__ == "__main__":
    main()
