"""Whether the average of a training's last weights has fewer held-out bits per dimension than the last ones.

    .venv/bin/python tools/research/average_weights.py CHECKPOINT … --name NAME --data cifar10 --out FILE

Checkpoints are copies of a run's `checkpoint.keras` at equal distances, oldest first. Moving moments belong to
weights: they are averaged alike, or "fresh", the means of the moments of 20 batches of training images.
"""

import argparse
import json
import pathlib

import numpy as np
from rotations import set_fresh_moments

import tfbnood.training  # noqa: F401  It registers the learning rate of a checkpoint with Keras.
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import sample_of
from tfbnood.data import load
from tfbnood.saving import load_model

COUNTS = (1, 5, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", nargs="+", type=pathlib.Path, metavar="CHECKPOINT")
    parser.add_argument("--data", required=True)
    parser.add_argument("--name", required=True, help="of the line in the result file")
    parser.add_argument("--n", type=int, default=256, help="held-out images (default: 256)")
    parser.add_argument("--out", type=pathlib.Path, help="result file, JSON; keeps its other lines")
    arguments = parser.parse_args()

    dataset = load(arguments.data)
    held_out, known = dataset.calibration[: arguments.n], sample_of(dataset.train, 20 * 64)
    # In float32, as trained models score.
    models = [load_model(path).in_precision("float32") for path in arguments.checkpoints]
    weights = [[one.numpy() for one in model.weights] for model in models]
    model = models[-1]

    def held_out_bits() -> float:
        return float(model.bits_per_dim(held_out).mean())

    bits = {}
    for count in COUNTS:
        if count <= len(weights):
            for variable, *values in zip(model.weights, *weights[-count:], strict=True):
                variable.assign(np.mean(values, axis=0))
            bits[f"mean of {count}"] = held_out_bits()
            set_fresh_moments(model, known)
            bits[f"mean of {count}, fresh moments"] = held_out_bits()
    for line in bits.items():
        print(*line)
    if arguments.out:
        lines = json.loads(arguments.out.read_text())["lines"] if arguments.out.exists() else {}
        lines[arguments.name] = {"data": arguments.data, "images": len(held_out), "bits": bits}
        about = {"versions": versions(), "machine": machine()}
        write_json(arguments.out, {**about, "lines": lines})


if __name__ == "__main__":
    main()
