"""`tfbnood demo`: the whole job on data that is always there, scikit-learn's 8×8 digits."""

import pathlib
from importlib.util import find_spec

import numpy as np
import tensorflow as tf

from tfbnood._core.files import atomic_path
from tfbnood.data.sets import load, photo_patches, rotate
from tfbnood.detector import Detector
from tfbnood.evaluation.run import evaluate
from tfbnood.statistics.registry import get
from tfbnood.training.run import train

__all__ = ["demo"]


def demo(out: str | pathlib.Path, *, steps: int = 500, seed: int = 0) -> None:
    """Trains a small RealNVP on digits, calibrates a detector, evaluates it and scores images with it.

    Args:
        out: folder of the results; a second call goes on where the first was stopped.
        steps: of training. Defaults to 500: with more, so few digits are learned by heart.
        seed: of everything random.
    """
    out = pathlib.Path(out)
    digits = load("digits")
    print(f"1. data: {digits!r}")
    print(f"2. training a RealNVP for {steps} steps of 64 images into {out / 'run'}")
    model = train(digits, model="realnvp", preset="tiny", steps=steps, out=out / "run", seed=seed)
    save_grid(out / "samples.png", model.sample(64, seed=seed))
    print(f"   64 images it draws: {out / 'samples.png'}")

    print(f"3. calibrating a detector on {len(digits.calibration)} held-out digits")
    detector = Detector(model, reference=digits.train, seed=seed)
    detector.calibrate(digits.calibration, progress=True).save(out / "detector")
    print(f"   detector: {out / 'detector'}")

    photos = photo_patches(len(digits.test), digits.image_shape, seed=seed)
    outliers = {
        "rotated": rotate(digits.test, seed=seed),
        "inverted": 255 - digits.test,
        "photos": photos,
    }
    print("4. evaluating on images that are no digits, alone and as a fifth of a stream of digits")
    result = evaluate(
        detector,
        digits.test,
        outliers,
        statistics=("ensemble", get("bn_delta", mixing="moments"), "log_prob", "pixel_knn"),
        contamination=(1.0, 0.2),
        seed=seed,
    )
    # Pictures are an extra of the install.
    suffixes = (".json", ".md", ".png") if find_spec("matplotlib") else (".json", ".md")
    for suffix in suffixes:
        result.save(out / f"evaluation{suffix}")
    print(f"\n{result}\n\n   as files: {out}/evaluation{', '.join(suffixes)}")

    print("5. scoring two requests of 64 images at a false-alarm rate of 5 %")
    for name, images in {"digits": digits.test, "photos": photos}.items():
        print(f"   {name}: {detector.predict(images[:64], fpr=0.05)}")
        print(f"   {name}: {detector.test_batch(images[:64])}")


def save_grid(path: str | pathlib.Path, images: np.ndarray, *, zoom: int = 8) -> None:
    """Writes images as one PNG, in rows of about as many as there are rows, each pixel `zoom` wide."""
    columns = int(np.ceil(np.sqrt(len(images))))
    rows = -(-len(images) // columns)
    blank = np.zeros((rows * columns - len(images), *images.shape[1:]), np.uint8)
    tiles = np.concatenate([images, blank]).reshape(rows, columns, *images.shape[1:])
    height, width, channels = images.shape[1:]
    grid = tiles.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, channels)
    grid = grid.repeat(zoom, axis=0).repeat(zoom, axis=1)
    with atomic_path(path) as temporary:
        temporary.write_bytes(tf.io.encode_png(grid).numpy())
