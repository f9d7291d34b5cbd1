"""The README's picture: a stream of garments with a few other images, as the shipped detector of Fashion-MNIST sees it.

    .venv/bin/python tools/release/readme_picture.py

The images depend only on the seed; none is chosen by its score. All of them may be redistributed: Fashion-MNIST (MIT),
digits and photographs of scikit-learn.
"""

import pathlib

import numpy as np
import tensorflow as tf

import tfbnood
from tfbnood.data.pseudo import pseudo_outliers
from tfbnood.plots.style import line, new_figure, write_figure

OUT = pathlib.Path(__file__).resolve().parents[2] / "results" / "stream.png"
COLUMNS, ROWS, FPR = 12, 3, 0.05


def main() -> None:
    garments = tfbnood.data.load("fashion_mnist").test
    random = np.random.RandomState(0)
    garments = garments[random.permutation(len(garments))]
    digits = tf.image.resize(tfbnood.data.load("digits").test[:3], (28, 28)).numpy()
    others = [
        np.rint(digits).astype(np.uint8),
        tfbnood.data.photo_patches(3, (28, 28, 1), seed=0),
        pseudo_outliers(garments[:2], seed=0)["patches"],
    ]
    count = sum(map(len, others))
    stream = np.concatenate([garments[2 : COLUMNS * ROWS + 2 - count], *others])
    order = random.permutation(len(stream))
    images, is_other = stream[order], order >= len(stream) - count
    result = tfbnood.load("fashion_mnist_realnvp").predict(images, fpr=FPR)

    figure = new_figure(0.95 * COLUMNS, 1.15 * ROWS + 0.5)
    for axes, image, p_value, flagged in zip(
        figure.subplots(ROWS, COLUMNS).flat, images, result.p_value, result.is_ood, strict=True
    ):
        axes.imshow(image, cmap="gray", vmin=0, vmax=255)
        axes.set_xticks([])
        axes.set_yticks([])
        colour = line(1)["color"] if flagged else "0.5"
        axes.set_title(f"p = {p_value:.2g}", fontsize="small", color=colour)
        for side in axes.spines.values():
            side.set(color=colour, linewidth=4 if flagged else 1)
    found, false = (int((result.is_ood & kind).sum()) for kind in (is_other, ~is_other))
    figure.suptitle(
        f"Trained on garments alone. Flagged at p ≤ {FPR:g}: {found} of {count} that do not belong, "
        f"and {false} of {len(images) - count} garments"
    )
    write_figure(OUT, figure)
    print(OUT)


if __name__ == "__main__":
    main()
