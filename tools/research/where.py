"""How well `explain` finds a 10×10 piece of another image pasted into an inlier: its peak, and pixel AUROC.

    .venv/bin/python tools/research/where.py --out tools/research/results/where.json

Settings are chosen on pieces of the same data set (only held-out images); the test is on pieces of another one. The
detectors are shipped ones, as loaded, which have no reference images, and networks fitted here. A piece is cut at a
random place of a random image and pasted at a random place, even if it is nearly black: nothing is left out.
"""

import argparse
import json
import os
import time

import numpy as np

import tfbnood
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.metrics import auroc
from tfbnood.statistics.where import explain

SIDE = 10
# Inliers, and the source of the pieces.
SETS = {"fashion_mnist": "mnist", "cifar10": "svhn"}
SHIPPED = {
    "fashion_mnist": ("fashion_mnist_vae", "fashion_mnist_realnvp", "fashion_mnist_pixelcnn"),
    "cifar10": ("cifar10_realnvp",),
}
NETWORK = "efficientnet-lite0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200, help="cases (default: 200)")
    parser.add_argument(
        "--reference",
        type=int,
        default=2000,
        help="images that networks are fitted to (default: 2000)",
    )
    parser.add_argument(
        "--members", action="store_true", help="also measure each member of an ensemble alone"
    )
    parser.add_argument("--only", nargs="+", help="detectors, by their printed names")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    about = {"cases": arguments.n, "piece": SIDE, "reference_images": arguments.reference}
    about |= {"versions": versions(), "machine": machine()}
    found = measured_before(arguments.out, about) if arguments.out else {}

    def keep(label: str, values: dict) -> None:
        print(label, values, flush=True)
        found[label] = values
        if arguments.out:  # After each one: all of them take most of an hour.
            write_json(arguments.out, {**about, "found": found})

    for name in SETS:
        dataset = tfbnood.data.load(name)
        cases = {
            f"pieces of {name}": paste(
                dataset.calibration[: arguments.n], dataset.calibration[1000:3000], seed=1
            ),
            f"pieces of {SETS[name]}": paste(
                dataset.test[: arguments.n], tfbnood.data.load(SETS[name]).test[:2000], seed=2
            ),
        }
        for label, make in detectors(name, dataset.train[: arguments.reference]).items():
            if label in found or (arguments.only and label not in arguments.only):
                continue
            for one, described in parts(make(), label, arguments.members):
                keep(described, measured(one, cases))
    if not arguments.only and f"scenes128, {NETWORK}" not in found:
        keep(f"scenes128, {NETWORK}", cost_at_128())


def measured_before(path: str, about: dict) -> dict[str, dict]:
    """What an earlier run with the same settings wrote into the result file; the run resumes after it."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        before = json.load(file)
    same = all(before.get(key) == value for key, value in about.items())
    return before["found"] if same else {}


def detectors(name: str, reference: np.ndarray) -> dict:
    """By name, functions that make the fitted statistic of a detector."""

    def on_network(statistic, **config):
        network = tfbnood.networks.load(NETWORK)
        return tfbnood.Detector(network, statistic, reference=reference, **config).statistic

    return {
        **{one: (lambda one=one: tfbnood.load(one).statistic) for one in SHIPPED[name]},
        f"{name}, {NETWORK}": lambda: on_network("auto"),
        f"{name}, {NETWORK}, bn_moments by quarters": lambda: on_network("bn_moments", grid=2),
        f"{name}, {NETWORK}, bn_local": lambda: on_network("bn_local"),
    }


def parts(statistic, label: str, members: bool) -> list[tuple]:
    """The statistic, and on request its members."""
    found = [(statistic, label)]
    if members and statistic.name == "ensemble":
        for one in statistic._members:
            grid = " by quarters" if getattr(one, "grid", 1) == 2 else ""
            found.append((one, f"{label}, {one.name}{grid} alone"))
    return found


def paste(bases: np.ndarray, sources: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with a piece of another image, and its place, bool `[n, height, width]`."""
    random = np.random.RandomState(seed)
    images, inside = bases.copy(), np.zeros(bases.shape[:3], bool)
    height, width = bases.shape[1:3]
    for image, mask in zip(images, inside, strict=True):
        source = sources[random.randint(len(sources))]
        y, x = (random.randint(side - SIDE + 1) for side in source.shape[:2])
        piece = source[y : y + SIDE, x : x + SIDE]
        y, x = random.randint(height - SIDE + 1), random.randint(width - SIDE + 1)
        image[y : y + SIDE, x : x + SIDE] = piece
        mask[y : y + SIDE, x : x + SIDE] = True
    return images, inside


def measured(statistic, cases: dict) -> dict:
    """Share of peaks inside the piece, mean pixel AUROC by image, and seconds per image after the first call."""
    found: dict[str, dict] = {}
    for label, (images, inside) in cases.items():
        explain(statistic, images[:2])
        start = time.perf_counter()
        maps = explain(statistic, images)
        seconds = (time.perf_counter() - start) / len(images)
        peaks = [mask.ravel()[one.argmax()] for one, mask in zip(maps, inside, strict=True)]
        areas = [auroc(mask.ravel(), one.ravel()) for one, mask in zip(maps, inside, strict=True)]
        found[label] = {
            "peak_inside": round(float(np.mean(peaks)), 3),
            "pixel_auroc": round(float(np.mean(areas)), 3),
            "pixel_auroc_of_all_images": round(auroc(inside.ravel(), maps.ravel()), 3),
            "chance": round(float(inside.mean()), 3),
            "seconds_per_image": round(seconds, 4),
        }
    return found


def cost_at_128() -> dict[str, float]:
    """Seconds per image of 128×128 colour images, by a network."""
    scenes = tfbnood.data.load("scenes128")
    statistic = tfbnood.Detector(
        tfbnood.networks.load(NETWORK), reference=scenes.train[:100]
    ).statistic
    explain(statistic, scenes.test[:2])
    start = time.perf_counter()
    explain(statistic, scenes.test[:48])
    seconds = (time.perf_counter() - start) / 48
    return {"seconds_per_image": round(seconds, 4)}


if __name__ == "__main__":
    main()
