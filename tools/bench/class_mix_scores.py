"""Scores and features of real images by detectors that ship and by a frozen network, computed once and kept.

Behind `class_mix.py` and `certified.py`, which only count. Nothing is fitted here to anything but training images.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfbnood._core.files import atomic_path

__all__ = ["DETECTORS", "load_scores"]

# By detector: the data set and the outliers.
GREY = ("mnist", "kmnist", "rotation")
COLOUR = ("svhn", "lsun", "rotation")
DETECTORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fashion_mnist_vae": ("fashion_mnist", GREY),
    "fashion_mnist_efficientnet-lite0": ("fashion_mnist", GREY),
    "cifar10_efficientnet-lite0": ("cifar10", COLOUR),
    "cifar10_realnvp": ("cifar10", COLOUR),
    "fashion_mnist_realnvp": ("fashion_mnist", GREY),
}
COUNTS = {"reference": 2000, "calibration": 2500, "test": 5000, "outliers": 600}
SIDE = 96  # pixels of the images that the network sees


def load_scores(name: str, cache: pathlib.Path, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays by set: `SET/score`, `SET/moments` (what clusters are made of), and `SET/label` where it is known.

    Sets are reference, calibration, test and the outliers.
    """
    path = cache / f"{name}_{seed}.npz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        found = compute_scores(name, seed)
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **found)
    with np.load(path) as arrays:
        return {key: arrays[key] for key in arrays.files}


def compute_scores(name: str, seed: int) -> dict[str, np.ndarray]:
    import tfbnood
    from tfbnood.data.pools import outlier_set

    data, outliers = DETECTORS[name]
    x = tfbnood.data.load(data)
    sets = {
        "reference": draw(x.train, COUNTS["reference"], seed),
        "calibration": draw(x.calibration, COUNTS["calibration"], seed),
        "test": draw(x.test, COUNTS["test"], seed),
    }
    found = {
        "calibration/label": draw(x.calibration_labels, COUNTS["calibration"], seed),
        "test/label": draw(x.test_labels, COUNTS["test"], seed),
    }
    for other in outliers:
        sets[other] = draw(outlier_set(other, x, seed=seed), COUNTS["outliers"], seed)
    detector = make_detector(name, sets["reference"])
    pass_over = compile_pass(detector.statistic)
    for key, images in sets.items():
        for part, values in pass_over(images, f"{name}: {key}").items():
            found[f"{key}/{part}"] = values
        print(name, key, len(images), flush=True)
    return found


def make_detector(name: str, reference: np.ndarray) -> Any:
    import tfbnood

    if name in tfbnood.list_models():
        return tfbnood.load(name)
    network = tfbnood.networks.load(name.rpartition("_")[2], size=SIDE)
    return tfbnood.Detector(network, reference=reference)


def compile_pass(statistic: Any) -> Callable[..., dict[str, np.ndarray]]:
    from tfbnood.scoring.compiled import compile_rows
    from tfbnood.scoring.evidence import gather

    statistic.prepare()
    moments = statistic.member("bn_moments")

    def outputs(images: tf.Tensor) -> dict[str, tf.Tensor]:
        evidence = gather(statistic._model, statistic.need, images)
        found = {
            "score": statistic.tensor_score(evidence),
            "moments": moments.tensor_coordinates(evidence),
        }
        if evidence.features is not None:
            found["features"] = tf.cast(tf.math.l2_normalize(evidence.features, axis=1), tf.float16)
        return found

    return compile_rows(outputs, statistic.image_shape_)


def draw(images: np.ndarray, count: int, seed: int) -> np.ndarray:
    return images[np.random.default_rng(seed).permutation(len(images))[:count]]
