"""`tfbnood demo`: the whole job on data that is always there, scikit-learn's 8×8 digits."""

import pathlib

import numpy as np
import tensorflow as tf

from tfbnood.data import load, photo_patches, rotate
from tfbnood.files import atomic_path
from tfbnood.training import train

__all__ = ["demo"]


def demo(out: str | pathlib.Path, *, steps: int = 900, seed: int = 0) -> None:
    """Trains a small RealNVP on digits and prints what it makes of digits and of images that are none.

    Args:
        out: folder of the results; a second call goes on where the first was stopped.
        steps: of training. Defaults to 900.
        seed: of everything random.
    """
    out = pathlib.Path(out)
    digits = load("digits")
    print(f"1. data: {digits!r}")
    print(f"2. training a RealNVP for {steps} steps of 64 images into {out / 'run'}")
    model = train(digits, model="realnvp", preset="tiny", steps=steps, out=out / "run", seed=seed)
    save_grid(out / "samples.png", model.sample(64, seed=seed))
    print(f"   64 images it draws: {out / 'samples.png'}")

    print("3. bits per dimension with moving moments and with those of the batch")
    sets = {
        "digits (test)": digits.test,
        "digits rotated by 90–270°": rotate(digits.test, seed=seed),
        "digits inverted": 255 - digits.test,
        "photo patches": photo_patches(len(digits.test), digits.image_shape, seed=seed),
    }
    print(f"   {'':26} {'moving':>9} {'batch':>9} {'difference':>11}")
    for name, images in sets.items():
        moving = model.bits_per_dim(images).mean()
        batch = model.bits_per_dim(images, training=True).mean()
        print(f"   {name:26} {moving:9.2f} {batch:9.2f} {batch - moving:11.2f}")
    print("   A likelihood alone may prefer foreign images; the difference gives them away.")


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
