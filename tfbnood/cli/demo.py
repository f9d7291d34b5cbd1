"""`tfbnood demo`: the whole job on data that is always there, scikit-learn's 8×8 digits."""

import argparse
import os
import pathlib
from typing import TYPE_CHECKING, Any

from tfbnood.cli import checks, options, values

if TYPE_CHECKING:
    import numpy as np

__all__ = ["add", "run", "save_grid"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "demo",
        help="the whole job on scikit-learn's 8×8 digits, in about 3 minutes",
        description="Trains on scikit-learn's 8×8 digits and shows how the model scores images that are not digits. "
        "The same command again resumes after Ctrl-C or a kill.",
    )
    options.out(command, "folder of the results (default: demo)", default="demo")
    # With more, so few digits are learned by heart.
    command.add_argument(
        "--steps", type=values.integer(1), default=500, help="training steps (default: 500)"
    )
    options.seed(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Trains a small RealNVP on digits, calibrates a detector, evaluates it and scores images with it."""
    checks.check_out(arguments.out)
    from tfbnood.data import load, photo_patches, rotate
    from tfbnood.detector import Detector
    from tfbnood.evaluation.run import evaluate
    from tfbnood.statistics.registry import get
    from tfbnood.training.run import train

    out, steps, seed = pathlib.Path(arguments.out), arguments.steps, arguments.seed
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
    print("4. evaluating on images that are not digits, alone and as a fifth of a stream of digits")
    result = evaluate(
        detector,
        digits.test,
        outliers,
        statistics=("ensemble", get("bn_delta", mixing="moments"), "log_prob", "pixel_knn"),
        contamination=(1.0, 0.2),
        seed=seed,
    )
    suffixes = (".json", ".md", ".png")
    for suffix in suffixes:
        result.save(out / f"evaluation{suffix}")
    print(f"\n{result}\n\n   as files: {out}/evaluation{', '.join(suffixes)}")

    print("5. scoring two requests of 64 images at a false-alarm rate of 5 %")
    for name, images in {"digits": digits.test, "photos": photos}.items():
        print(f"   {name}: {detector.predict(images[:64], fpr=0.05)}")
        print(f"   {name}: {detector.test_batch(images[:64])}")


def save_grid(path: str | os.PathLike[str], images: "np.ndarray", *, zoom: int = 8) -> None:
    """Writes images as one PNG, in rows of about as many as there are rows, each pixel `zoom` wide."""
    import numpy as np
    import tensorflow as tf

    from tfbnood._core.files import atomic_path

    columns = int(np.ceil(np.sqrt(len(images))))
    rows = -(-len(images) // columns)
    blank = np.zeros((rows * columns - len(images), *images.shape[1:]), np.uint8)
    tiles = np.concatenate([images, blank]).reshape(rows, columns, *images.shape[1:])
    height, width, channels = images.shape[1:]
    grid = tiles.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, channels)
    grid = grid.repeat(zoom, axis=0).repeat(zoom, axis=1)
    with atomic_path(path) as temporary:
        temporary.write_bytes(tf.io.encode_png(grid).numpy())
