"""False alarms of a saved detector on in-distribution test images: fresh ones, and batches of one class only.

    .venv/bin/python tools/release/false_alarms.py fashion_mnist_realnvp --data fashion_mnist --out results/NAME.json

Class-skewed batches are in-distribution image by image, but a batch statistic takes them for a shift. The rates are
printed whatever they are.
"""

import argparse
from typing import Any

import numpy as np
from tqdm import tqdm

import tfbnood
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data import load
from tfbnood.detector import Detector


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("detector", help="shipped name, or a detector's folder")
    parser.add_argument("--data", required=True, help="data set with labels")
    parser.add_argument("--fpr", type=float, default=0.05, help="nominal rate (default: 0.05)")
    parser.add_argument("--fresh", type=int, default=2000, help="fresh images (default: 2000)")
    parser.add_argument("--request", type=int, default=64, help="images per request (default: 64)")
    parser.add_argument("--skewed", type=int, default=4, help="requests of each class (default: 4)")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()

    detector = tfbnood.load(arguments.detector)
    dataset = load(arguments.data)
    order = np.random.RandomState(0).permutation(len(dataset.test))
    images, labels = dataset.test[order], dataset.test_labels[order]
    size = arguments.request

    fresh = [images[start : start + size] for start in range(0, arguments.fresh, size)]
    fresh[-1] = images[
        arguments.fresh - size : arguments.fresh
    ]  # a short last request would be another test
    skewed = [
        images[labels == label][size * index : size * (index + 1)]
        for label in np.unique(labels)
        for index in range(arguments.skewed)
    ]
    result = {
        "detector": arguments.detector,
        "statistic": detector.statistic.name,
        "config": detector.statistic.get_config(),
        "data": arguments.data,
        "nominal_rate": arguments.fpr,
        "images_a_request": size,
        "fresh_images": arguments.fresh,
        "fresh": _measure_rates(detector, fresh, arguments.fpr),
        "one_class_only": _measure_rates(detector, skewed, arguments.fpr),
        "versions": versions(),
        "machine": machine(),
    }
    for name in ("fresh", "one_class_only"):
        rates = result[name]
        print(
            f"{name}: {rates['images']:.1%} of images and {rates['whole_batches']:.1%} of {rates['requests']} "
            f"whole batches flagged at {arguments.fpr:.0%}"
        )
    if arguments.out:
        write_json(arguments.out, result)


def _measure_rates(detector: Detector, requests: list[np.ndarray], fpr: float) -> dict[str, Any]:
    images, batches = [], []
    for request in tqdm(requests, unit="request", disable=None):
        images.append((detector.p_values(request) <= fpr).mean())
        batches.append(detector.test_batch(request).p_value <= fpr)
    return {
        "requests": len(requests),
        "images": float(np.mean(images)),
        "whole_batches": float(np.mean(batches)),
    }


if __name__ == "__main__":
    main()
