"""Why a model does or does not find rotations: log p and Δ by interpolation, draws, choice of moments, and layer.

    .venv/bin/python tools/research/rotations.py NAME --n 128 --out tools/research/results/rotations_NAME.json

Nothing is chosen here: it explains cells of the paper's tables after they were measured. "Fresh" moving moments are the
means of the moments of 20 batches of training images, instead of those of the training. "Alone" takes the moments of
the batch in one batch normalisation, and the moving ones in all others.
"""

import argparse
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbnood import zoo
from tfbnood._core.batching import map_batches
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import sample_of, take
from tfbnood._core.units import bits_per_dim
from tfbnood.data import load, rotate
from tfbnood.data.pools import INTERPOLATIONS
from tfbnood.metrics import auroc
from tfbnood.scoring.conditional import ConditionalLogProb
from tfbnood.scoring.rules import batch_normalizations, ruled

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
    layers = measure_layers(model, sets)
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
        write_json(arguments.out, {**about, "result": found, "alone": layers})


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


def measure_layers(model: Any, sets: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """By layer, in the order of the calls: what the moments of the batch in it alone add to the bits, and AUROC."""
    names: list[str] = []
    count = len(batch_normalizations(model))

    @tf.function(autograph=False)
    def log_prob(batch, takes_batch):
        names.clear()

        def choose(layer, inputs):
            names.append(f"{layer.path.partition('/')[2]}, {inputs.shape[1]}×{inputs.shape[2]}")
            moving = (
                tf.convert_to_tensor(one) for one in (layer.moving_mean, layer.moving_variance)
            )
            own = tf.nn.moments(inputs, list(range(len(inputs.shape) - 1)))
            here = takes_batch[len(names) - 1]
            mean, variance = (
                tf.where(here, ours, theirs) for ours, theirs in zip(own, moving, strict=True)
            )
            return mean, variance

        with ruled(model, choose):
            return model.log_prob(batch)

    # As in an experiment's batches: files may be sorted by class.
    order = np.random.RandomState(0).permutation(len(sets["inliers"]))
    pools = {name: pool[order] for name, pool in sets.items()}

    def bits(takes_batch: np.ndarray) -> dict[str, np.ndarray]:
        return {
            name: bits_per_dim(
                map_batches(lambda batch: log_prob(batch, takes_batch), pool), pool.shape[1:]
            )
            for name, pool in pools.items()
        }

    still = bits(np.zeros(count, bool))
    is_ood = np.repeat([False, True], len(order))
    lines = []
    for layer in (*range(count), "all"):
        moved = bits(np.ones(count, bool) if layer == "all" else np.arange(count) == layer)
        added = {name: moved[name] - still[name] for name in pools}
        lines.append(
            {
                "layer": layer if layer == "all" else names[layer],
                "bits_added": {name: float(of.mean()) for name, of in added.items()},
                "auroc_delta": {
                    name: auroc(is_ood, np.abs(np.append(added["inliers"], added[name])))
                    for name in INTERPOLATIONS
                },
            }
        )
        print(lines[-1], flush=True)
    return lines


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
