"""The paper's figures from the results of stages."""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfbnood.metrics import auroc
from tfbnood.plots.style import CHANCE, line, marker, new_figure
from tfbnood.reproduce.tables import title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_figure1", "draw_figure2", "draw_figure3", "draw_figure4", "draw_figure5"]

Studies = Mapping[str, Mapping[str, Any]]


def draw_figure1(studies: Studies) -> "Figure":
    """Left: likelihoods of several sets overlap, or are higher for outliers. Right: why a wrong model does that."""
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    name, study = next((name, study) for name, study in studies.items() if "bits" in study)
    sets = study["bits"]["evaluation"]
    middles = np.array([np.percentile(values, (0.5, 99.5)) for values in sets.values()])
    bins = np.linspace(middles[:, 0].min(), middles[:, 1].max(), 60)
    for index, (images, values) in enumerate(sets.items()):
        shares, _ = np.histogram(np.clip(values, bins[0], bins[-1]), bins)
        left.stairs(shares / len(values), bins, label=images, linewidth=1.5, **line(index))
    left.set_xlabel("bits per dimension, evaluation mode")
    left.set_ylabel("share of images a bin")
    left.set_title(title_of(name))
    left.legend(fontsize="small")

    x = np.linspace(-2.5, 2.5, 1001)
    mixture = 0.5 * (_normal(x, -1.0, 0.1) + _normal(x, 1.0, 0.1))
    right.plot(x, mixture, label="p: ½ N(−1, .01) + ½ N(1, .01)", **line(0))
    right.plot(x, _normal(x, 0.0, np.sqrt(1.01)), label="best Gaussian", **line(1))
    right.axvline(0, 0, 0.7, label="likeliest under the model", **CHANCE)
    right.set_xlabel("x")
    right.set_ylabel("density")
    right.set_title("A mis-specified model")
    right.legend(fontsize="small", loc="upper center")
    right.set_ylim(0, 1.35 * mixture.max())
    return figure


def draw_figure2(studies: Studies) -> "Figure":
    """The two-dimensional flow: z2 of outliers looks normal in evaluation mode and is stretched in training mode."""
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    left.stem([-1, 1], [0.5, 0.5], linefmt=line(0)["color"], basefmt=" ", label="p(x1): ±1")
    left.stairs([1.0], [-0.5, 0.5], label="q(x1): uniform", linewidth=1.5, **line(1))
    x = np.linspace(-2.5, 2.5, 501)
    left.plot(x, _normal(x, 0.0, 1.0), label="model: N(0, 1)", **line(2))
    left.set_xlabel("x1")
    left.set_ylabel("density; probability for p")
    left.set_title("Data")
    left.set_ylim(0, 1.5)  # Space for the legends.
    left.legend(fontsize="small")
    wide = np.sqrt(3.0)  # (x1 − E) / √V of a uniform variable
    right.stairs([1.0], [-0.5, 0.5], label="q, evaluation: −1.92", linewidth=1.5, **line(1))
    right.stairs([0.5 / wide], [-wide, wide], label="q, training: −2.38", linewidth=1.5, **line(3))
    right.stem([-1, 1], [0.5, 0.5], linefmt=line(0)["color"], basefmt=" ", label="p: −2.84")
    right.plot(x, _normal(x, 0.0, 1.0), label="prior: N(0, 1)", **line(2))
    right.set_xlabel("z2 = (x1 − E) / √V")
    right.set_title("Latent by mode, and E[log p_f] in nats")
    right.set_ylim(0, 1.5)
    right.legend(fontsize="small")
    return figure


def draw_figure3(studies: Studies) -> "Figure":
    """Bits per dimension against the share of test images in mixed batches, one panel per model."""
    found = {name: study["shares"] for name, study in studies.items() if study.get("shares")}
    figure = new_figure(max(4.5, 3.8 * len(found)), 3.8)
    for axes, (name, shares) in zip(
        figure.subplots(1, len(found), sharey=True, squeeze=False)[0], found.items(), strict=True
    ):
        for index, (images, bits) in enumerate(shares["bits"].items()):
            axes.plot(shares["shares"], bits, marker=marker(index), label=images, **line(index))
        axes.set_yscale("log")
        axes.set_yticks([2, 3, 5, 10, 20], ["2", "3", "5", "10", "20"])
        axes.set_yticks([], minor=True)
        axes.set_xlabel("share r of test images in the batch")
        axes.set_title(title_of(name))
        axes.legend(fontsize="small")
    figure.axes[0].set_ylabel("mean bits per dimension, logarithmic")
    return figure


def draw_figure4(studies: Studies) -> "Figure":
    """ROC of T_perm: real outliers, and samples of a model trained on them, tuned to look typical."""
    found = {name: study["fooled"] for name, study in studies.items() if study.get("fooled")}
    figure = new_figure(max(4.5, 4.2 * len(found)), 4.8)
    for axes, (name, fooled) in zip(
        figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        inliers, *others = fooled["t_perm"]
        for index, images in enumerate(others):
            scores = np.concatenate([fooled["t_perm"][inliers], fooled["t_perm"][images]])
            is_ood = np.arange(len(scores)) >= len(fooled["t_perm"][inliers])
            label = (
                f"samples at T = {fooled['fooling']:g}" if images == "samples" else f"real {images}"
            )
            label += f": AUROC {auroc(is_ood, scores):.2f}"
            axes.plot(*_roc(is_ood, scores), label=label, **line(index))
        axes.plot([0, 1], [0, 1], label="chance", **CHANCE)
        axes.set_xlabel("false-positive rate")
        axes.set_title(f"T_perm, {title_of(name)}")
        # Below the axes: inside, one of the curves is always in the way.
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16))
    figure.axes[0].set_ylabel("true-positive rate")
    return figure


def draw_figure5(studies: Studies) -> "Figure":
    """Samples whose bits per dimension are nearest to those of a typical image of the model's own set."""
    found = {name: study["fooled"] for name, study in studies.items() if study.get("fooled")}
    figure = new_figure(9, 1.8 * len(found))
    parts = figure.subfigures(len(found), 1, squeeze=False)[:, 0]
    for part, (name, fooled) in zip(parts, found.items(), strict=True):
        own, shown = next(iter(fooled["bits"].values())), fooled["examples"]
        part.suptitle(
            f"Samples of the same model trained on {fooled['data']}, at temperature {fooled['fooling']:g}.\n"
            f"Below: bits per dimension by {title_of(name)}; its real images have {np.median(own):.2f}",
            fontsize="small",
        )
        for axes, png, bits in zip(
            part.subplots(1, len(shown["png"])), shown["png"], shown["bits"], strict=True
        ):
            image = tf.io.decode_png(base64.b64decode(png)).numpy()
            axes.imshow(image, cmap="gray", vmin=0, vmax=255)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_xlabel(f"{bits:.2f}", fontsize="small")
    return figure


def _normal(x: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    return np.exp(-0.5 * ((x - mean) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))


def _roc(is_ood: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.metrics import roc_curve

    false_positives, true_positives, _ = roc_curve(is_ood, scores)
    return false_positives, true_positives
