"""AUROC on held-out classes of the same data set as outliers: `ensemble` beside each of its members.

    .venv/bin/python tools/research/held_out_classes.py NAME … --out tools/research/results/held_out_classes.json

Pseudo-outliers are spoiled images of known things; these are untouched images of other things. Half of the classes are
known: members, networks of `pretext` and mixture are fitted to their training images, and test images of the other half
are the outliers. The likelihood model is the shipped one and has seen all classes, without labels, as training one for
every case takes hours. Labels determine which images are held out; no detector sees them.
"""

import argparse

import numpy as np
from untouched_sets import compared

from tfbnood import zoo
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data import load
from tfbnood.data.pseudo import ALL_KINDS
from tfbnood.reproduce.reuse import prepare_ensemble
from tfbnood.statistics.pretext.statistic import Pretext

# Chosen before anything was measured.
KNOWN = {"classes 5–9": range(5), "odd classes": range(0, 10, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="detector under savedmodels/")
    parser.add_argument("--n", type=int, default=1000, help="images of each set (default: 1000)")
    parser.add_argument(
        "--steps", type=int, default=1000, help="training steps of pretext (default: 1000)"
    )
    parser.add_argument("--runs", default="runs", help="folder of networks (default: runs)")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    found = {name: measured(name, arguments) for name in arguments.names}
    if arguments.out:
        about = {"images": arguments.n, "pretext": {"steps": arguments.steps}}
        about |= {"versions": versions(), "machine": machine()}
        write_json(arguments.out, {**about, "auroc": found})


def measured(name: str, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """By held-out classes, the AUROC of `ensemble` and of each member alone."""
    dataset = load(zoo.manifest(name)["training"]["data"], data_dir=arguments.data_dir)
    model = zoo.load(name).model
    found = {}
    for held_out, classes in KNOWN.items():
        train = dataset.train[np.isin(dataset.train_labels, list(classes))]
        # One network of all kinds instead of two, since every case needs its own.
        pretext = Pretext(kinds=ALL_KINDS, steps=arguments.steps)
        ensemble = prepare_ensemble(train, arguments.runs, pretext)
        ensemble.fit(model, train, progress=True)
        known = np.isin(dataset.test_labels, list(classes))
        outliers = {held_out: dataset.test[~known]}
        found |= compared(ensemble, dataset.test[known], outliers, arguments.n, name)
    return found


if __name__ == "__main__":
    main()
