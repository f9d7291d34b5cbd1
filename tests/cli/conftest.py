"""What the tests of single commands share: a run, a detector and images, made once as a user makes them."""

import subprocess
import sys

import numpy as np
import pytest

from tfbnood.cli import main


@pytest.fixture(scope="session")
def folder(tmp_path_factory, digits):
    """A run, a detector made of it, and images to score: 30 digits and 2 white squares."""
    import tensorflow as tf

    from tfbnood.training.run import train

    folder = tmp_path_factory.mktemp("commands")
    train(digits, model="vae", preset="tiny", steps=1, out=folder / "run", progress=False)
    line = ["calibrate", str(folder / "run"), "--statistic", "pixel_pca", "--images", "200"]
    # In a process of its own, which has imported nothing yet.
    line = [sys.executable, "-m", "tfbnood", *line, "--out", str(folder / "detector")]
    subprocess.run(line, check=True)
    images = np.concatenate([digits.test[:30], np.full((2, 8, 8, 1), 255, np.uint8)])
    (folder / "images" / "white").mkdir(parents=True)
    for index, image in enumerate(images):
        name = f"images/{'white/' if index >= 30 else ''}{index:02d}.png"
        (folder / name).write_bytes(tf.io.encode_png(image).numpy())
    np.savez(folder / "images.npz", images=images)
    np.save(folder / "images.npy", images)
    return folder


@pytest.fixture
def run(capsys):
    """Runs a command line in this process; returns the exit code, standard output and standard error."""

    def run(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
