"""Alarms on changed in-distribution images with and without `tolerate`, and what it costs in AUROC.

    .venv/bin/python tools/bench/tolerate.py --n 300 --reference 1000 --out results/tolerate.json

Each detector is fitted twice to the same reference images, plain and with tolerate=("jpeg", "resize", "brightness").
Alarms at 5 % are counted on fresh images: as they are, as JPEG files of two qualities, enlarged to twice their size and
back by two filters, and darker by a tenth. None of these strengths was used to choose anything.
"""

import argparse
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

import tfbnood
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import take
from tfbnood.data.pools import outlier_set
from tfbnood.metrics import auroc

TOLERATED = ("jpeg", "resize", "brightness")
LEVEL = 0.05
DETECTORS = {
    "fashion_mnist, EfficientNet-Lite0": ("fashion_mnist", "efficientnet-lite0"),
    "fashion_mnist, VAE": ("fashion_mnist", "fashion_mnist_vae"),
    "cifar10, EfficientNet-Lite0": ("cifar10", "efficientnet-lite0"),
    "cifar10, RealNVP": ("cifar10", "cifar10_realnvp"),
}
OUTLIERS = {
    "fashion_mnist": ("mnist", "kmnist", "omniglot", "rotation"),
    "cifar10": ("lsun", "svhn", "tinyimagenet", "rotation"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=500, help="images of each set (default: 500)")
    parser.add_argument("--reference", type=int, default=2000, help="(default: 2000)")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    about = {"images": arguments.n, "reference": arguments.reference, "tolerate": TOLERATED}
    about |= {"level": LEVEL, "versions": versions(), "machine": machine()}
    found = {}
    for title, (data, name) in DETECTORS.items():
        for tolerate in ((), TOLERATED):
            key = f"{title}, tolerate={'yes' if tolerate else 'no'}"
            found[key] = measure(data, name, tolerate, arguments)
            print(key, found[key], flush=True)
            if arguments.out:  # After each: the whole takes ten minutes of two free cores.
                write_json(arguments.out, {**about, "found": found})


def measure(
    data: str, name: str, tolerate: tuple[str, ...], arguments: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Alarms by change, AUROC by set, and the share of each set that is found at the level."""
    x = tfbnood.data.load(data)
    is_network = name in tfbnood.networks.names()
    model: Any = tfbnood.networks.load(name) if is_network else tfbnood.load(name).model
    # Without pretext, which trains for minutes and takes blurred and darker images for outliers by design.
    detector = tfbnood.Detector(
        model, reference=take(x.train, arguments.reference, 0), tolerate=tolerate, pretext=False
    ).calibrate(take(x.calibration, 500, 0))
    fresh = take(x.test, arguments.n, 0)
    alarms = {
        change: float((detector.p_values(of(fresh)) <= LEVEL).mean())
        for change, of in CHANGES.items()
    }
    clean = detector.score(fresh)
    areas, shares = {}, {}
    for one in OUTLIERS[data]:
        images = take(outlier_set(one, x, seed=0), arguments.n, 0)
        scores = detector.score(images)
        is_ood = np.repeat([False, True], [len(clean), len(scores)])
        areas[one] = round(auroc(is_ood, np.concatenate([clean, scores])), 4)
        shares[one] = round(float((detector.p_values(images) <= LEVEL).mean()), 4)
    return {"alarms": alarms, "auroc": areas, "found": shares}


def as_jpeg(quality: int) -> Callable[[np.ndarray], np.ndarray]:
    def encoded(image: np.ndarray) -> np.ndarray:
        file = io.BytesIO()
        Image.fromarray(image.squeeze()).save(file, "jpeg", quality=quality)
        return np.asarray(Image.open(file)).reshape(image.shape)

    return lambda images: np.stack([encoded(image) for image in images])


def enlarged(filter: Image.Resampling) -> Callable[[np.ndarray], np.ndarray]:
    def there_and_back(image: np.ndarray) -> np.ndarray:
        height, width = image.shape[:2]
        picture = Image.fromarray(image.squeeze())
        picture = picture.resize((2 * width, 2 * height), filter).resize((width, height), filter)
        return np.asarray(picture).reshape(image.shape)

    return lambda images: np.stack([there_and_back(image) for image in images])


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as they are": lambda images: images,
    "JPEG 95": as_jpeg(95),
    "JPEG 75": as_jpeg(75),
    "enlarged and back, bilinear": enlarged(Image.Resampling.BILINEAR),
    "enlarged and back, bicubic": enlarged(Image.Resampling.BICUBIC),
    "a tenth darker": lambda images: np.rint(images * 0.9).astype(np.uint8),
}


if __name__ == "__main__":
    main()
