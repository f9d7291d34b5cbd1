"""Pictures of likelihoods, scores and decisions, drawn from plain numbers; only `moments` asks a model.

Every function but `moment_deviations` returns a `matplotlib.figure.Figure`: a notebook shows it, and
`figure.savefig("roc.pdf")` writes it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood.plots.curves import ALONG, PRECISION_RECALL, ROC, Curve, curve_band
from tfbnood.errors import DataError
from tfbnood.plots.style import (
    CHANCE,
    check_at_least_one,
    check_length,
    draw_band,
    legend_beside,
    line,
    marker,
    new_figure,
    share_axis,
    vector,
    vectors,
)
from tfbnood._core.images import as_images
from tfbnood.metrics import Estimate, estimates
from tfbnood.plots.moments import moment_deviations, moment_map, moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tfbnood.evaluation.result import Evaluation

__all__ = [
    "bits_against_share",
    "contamination",
    "delta_against_contamination",
    "extremes",
    "likelihoods",
    "moment_deviations",
    "moment_map",
    "moments",
    "p_values",
    "precision_recall",
    "roc",
]


def likelihoods(
    bits: Mapping[str, Mapping[str, Any]], *, bins: int = 50, title: str = ""
) -> "Figure":
    """Draws histograms of bits per dimension: a panel a mode of batch normalisation, a colour a set.

    Bins are common to all. They span the middle 99 % of every set; what lies beyond is counted in the outermost
    bins, and the axis says how many values that are.

    Args:
        bits: `{mode: {set: [n]}}`, in bits per dimension.
        bins: how many. Defaults to 50.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> bits = np.random.default_rng(0).normal(3.0, 0.2, size=(2, 100))
        >>> modes = {"evaluation": {"digits": bits[0]}, "training": {"digits": bits[1] + 0.1}}
        >>> [axes.get_title() for axes in tfbnood.plots.likelihoods(modes).axes]
        ['evaluation mode', 'training mode']
    """
    check_at_least_one(bins, "bins")
    if not isinstance(bits, Mapping) or not bits:
        raise DataError(f"bits must be a dict of at least one mode. Received: {bits!r:.50}")
    modes = {mode: vectors(sets, f"bits[{mode!r}]", "all") for mode, sets in bits.items()}
    every = [values for sets in modes.values() for values in sets.values()]
    middles = np.array([np.percentile(values, (0.5, 99.5)) for values in every])
    low, high = middles[:, 0].min(), middles[:, 1].max()
    edges = np.histogram_bin_edges((low, high), bins)
    beyond = sum(int(((values < edges[0]) | (values > edges[-1])).sum()) for values in every)
    names = list(dict.fromkeys(name for sets in modes.values() for name in sets))

    figure = new_figure(8.4, 0.9 + 2.3 * len(modes))
    panels = figure.subplots(len(modes), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (mode, sets) in zip(panels, modes.items(), strict=True):
        for name, values in sets.items():
            counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
            label = f"{name}: {len(values)} images, mean {values.mean():.2f}"
            _draw_histogram(axes, counts, edges, names.index(name), label)
        axes.set_title(f"{mode} mode")
        axes.set_ylabel("images a bin")
        legend_beside(axes)
    unit = "bits per dimension"
    panels[-1].set_xlabel(f"{unit} (outermost bins: also {beyond} beyond)" if beyond else unit)
    figure.suptitle(title or "Likelihoods by mode of batch normalisation")
    return figure


def bits_against_share(
    shares: Any,
    bits: Mapping[str, Any],
    *,
    bands: Mapping[str, tuple[Any, Any]] | None = None,
    title: str = "",
) -> "Figure":
    """Draws mean bits per dimension against the share r of test images in a batch, a curve a set.

    Args:
        shares: r in [0, 1], `[k]`: 0 is evaluation mode, 1 training mode.
        bits: `{set: [k]}`, mean bits per dimension at every share.
        bands: `{set: (low, high)}`, `[k]` each, for some sets or all.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> curves = {"digits": [2.0, 2.0, 2.1], "inverted": [3.0, 4.5, 6.0]}
        >>> tfbnood.plots.bits_against_share([0.0, 0.5, 1.0], curves).axes[0].get_ylabel()
        'mean bits per dimension'

    Reference: Figure 3 of arXiv:1910.09115.
    """
    shares = _within_one(vector(shares, "shares"), "shares")
    curves = vectors(bits, "bits", "test images")
    bands = bands or {}
    if set(bands) - set(curves):
        raise DataError(f"bands must be of sets in bits, {list(curves)}. Received: {list(bands)}")
    figure = new_figure(7.6, 4.2)
    axes = figure.subplots()
    for index, (name, values) in enumerate(curves.items()):
        check_length(values, shares, f"bits[{name!r}]", "shares")
        axes.plot(shares, values, marker=marker(index), label=name, **line(index))
        if name in bands:
            low, high = (vector(side, f"bands[{name!r}]") for side in bands[name])
            for side in (low, high):
                check_length(side, shares, f"bands[{name!r}]", "shares")
            draw_band(axes, shares, low, high, index)
    axes.set_xlabel("share r of test images in the batch")
    axes.set_ylabel("mean bits per dimension")
    axes.set_title(title or "Likelihoods among companions")
    legend_beside(axes)
    return figure


def roc(is_ood: Any, scores: Any, *, seed: int = 0, title: str = "") -> "Figure":
    """Draws ROC curves with 95 % bands and AUROC.

    Bands are pointwise, by bootstrap over images: outliers and inliers are drawn apart, 200 times.

    Args:
        is_ood: `[n]`, True or 1 for outliers.
        scores: `[n]` or `{label: [n]}`, higher means more out-of-distribution.
        seed: of the bootstrap.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> figure = tfbnood.plots.roc([0, 0, 1, 1], {"brightness": [0.1, 0.4, 0.6, 0.8]})
        >>> [line.get_label() for line in figure.axes[0].get_lines()]
        ['brightness: AUROC 1.000 ±0.000', 'chance: 0.5']
    """
    figure = new_figure(7.6, 4.8)
    axes = figure.subplots()
    _draw_curves(axes, ROC, is_ood, scores, seed, "AUROC", drawstyle="default")
    axes.plot([0, 1], [0, 1], label="chance: 0.5", **CHANCE)
    axes.set_xlabel("false-positive rate: share of inliers that raise an alarm")
    axes.set_ylabel("true-positive rate: share of outliers found")
    axes.set_title(title or "ROC curve, 95 % band")
    legend_beside(axes)
    return figure


def precision_recall(is_ood: Any, scores: Any, *, seed: int = 0, title: str = "") -> "Figure":
    """Draws precision-recall curves with 95 % bands and average precision.

    Curves are steps, as average precision is their area; bands are as for `roc`. The level of chance is the share
    of outliers.

    Args:
        is_ood: `[n]`, True or 1 for outliers.
        scores: `[n]` or `{label: [n]}`, higher means more out-of-distribution.
        seed: of the bootstrap.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> figure = tfbnood.plots.precision_recall([0, 0, 0, 1], [0.1, 0.4, 0.3, 0.8])
        >>> [line.get_label() for line in figure.axes[0].get_lines()]
        ['scores: AP 1.000 ±0.000', 'chance: 0.250']
    """
    figure = new_figure(7.6, 4.8)
    axes = figure.subplots()
    _draw_curves(axes, PRECISION_RECALL, is_ood, scores, seed, "AP", drawstyle="steps-pre")
    chance = np.asarray(is_ood, np.float64).mean()
    axes.axhline(chance, label=f"chance: {chance:.3f}", **CHANCE)
    axes.set_xlabel("recall: share of outliers found")
    axes.set_ylabel("precision: share of outliers among alarms")
    axes.set_title(title or "Precision and recall, 95 % band")
    legend_beside(axes)
    return figure


def p_values(p_values: Any, *, bins: int = 20, title: str = "") -> "Figure":
    """Draws histograms of p-values against the uniform level that they have in-distribution.

    A bin holds its right edge, so that the first bar is the share of alarms at a false-alarm rate of 1/bins.

    Args:
        p_values: `[n]` or `{set: [n]}`, in [0, 1].
        bins: how many. Defaults to 20.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> figure = tfbnood.plots.p_values({"digits": [0.2, 0.9, 0.4], "inverted": [0.01, 0.02]})
        >>> figure.axes[0].get_ylabel()
        'share of images'
    """
    check_at_least_one(bins, "bins")
    edges = np.linspace(0, 1, bins + 1)
    figure = new_figure(7.6, 4.2)
    axes = figure.subplots()
    for index, (name, values) in enumerate(vectors(p_values, "p_values", "all").items()):
        # Rounding must not move a p-value into the next bin; 0 has none of its own.
        places = np.ceil(_within_one(values, "p_values") * bins - 1e-9).astype(int)
        counts = np.bincount(np.maximum(places, 1) - 1, minlength=bins)
        label = f"{name}: {len(values)} images"
        _draw_histogram(axes, counts / len(values), edges, index, label)
    axes.axhline(1 / bins, label=f"uniform: {1 / bins:.3g} a bin", **CHANCE)
    axes.set_xlabel("p-value")
    axes.set_ylabel("share of images")
    axes.set_title(title or "p-values: uniform in-distribution")
    legend_beside(axes)
    return figure


def extremes(
    images: Any,
    scores: Any,
    *,
    count: int = 8,
    names: Sequence[str] | None = None,
    title: str = "",
) -> "Figure":
    """Shows the images with the highest scores, and below them those with the lowest, each with its score.

    Args:
        images: `[n, height, width, channels]` in 0–255, grey or colour.
        scores: `[n]`, higher means more out-of-distribution.
        count: images in a row. Defaults to 8, or all when there are fewer.
        names: of the images, `[n]`, written above the scores.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> images = tfbnood.data.load("digits").test[:5]
        >>> figure = tfbnood.plots.extremes(images, [0.3, 0.1, 0.9, 0.2, 0.5], count=2)
        >>> [axes.get_title() for axes in figure.axes]
        ['0.9000', '0.5000', '0.1000', '0.2000']
    """
    check_at_least_one(count, "count")
    images, scores = as_images(images), vector(scores, "scores")
    check_length(scores, images, "scores", "images")
    if names is not None:
        check_length(names, images, "names", "images")
    count = min(count, len(images))
    order = np.argsort(-scores, kind="stable")
    rows = {"highest scores": order[:count], "lowest scores": order[::-1][:count]}
    style = _number_style(scores[[*rows["highest scores"], *rows["lowest scores"]]])

    figure = new_figure(max(4, 0.6 + 1.1 * count), 3.2 if names is None else 3.5)
    grid = figure.subplots(2, count, squeeze=False)
    for panels, (row, chosen) in zip(grid, rows.items(), strict=True):
        panels[0].set_ylabel(row)
        for axes, index in zip(panels, chosen, strict=True):
            axes.imshow(images[index], cmap="gray", vmin=0, vmax=255)
            axes.set_xticks([])
            axes.set_yticks([])
            score = format(scores[index], style)
            axes.set_title(score if names is None else f"{names[index]}\n{score}", fontsize="small")
    figure.suptitle(title or "Most and least out-of-distribution")
    return figure


def contamination(evaluation: "Evaluation") -> "Figure":
    """Draws AUROC against the share of outliers in the pool, a panel a set; the same as `evaluation.plot()`.

    Args:
        evaluation: what `tfbnood.evaluate` returned.

    Returns:
        The figure.

    Example:
        >>> digits = tfbnood.data.load("digits").test
        >>> sets = {"inverted": 255 - digits}
        >>> found = tfbnood.evaluate(None, digits, sets, statistics="pixel_pca", contamination=(1.0, 0.2))
        >>> tfbnood.plots.contamination(found).axes[0].get_title()
        'inverted'
    """
    if not callable(getattr(evaluation, "plot", None)):
        raise DataError(
            f"evaluation must be what tfbnood.evaluate returned. Received: {type(evaluation).__name__}"
        )
    return evaluation.plot()


def delta_against_contamination(
    deltas: Mapping[float, Mapping[str, Any]], *, title: str = ""
) -> "Figure":
    """Draws the paper's Δ of every kind of image against the share of outliers in the pool.

    Lines are medians, bands hold the middle 80 % of a kind. Where bands of outliers and of inliers overlap, no
    threshold on Δ parts the two.

    Args:
        deltas: `{share: {kind: [n]}}`, shares in (0, 1]: Δ of the images of a pool, in nats, as `bn_delta` scores
            them. With a share of 1 outliers are a pool of their own.
        title: Defaults to what is drawn.

    Returns:
        The figure.

    Example:
        >>> deltas = {1.0: {"digits": [1.0, 2.0], "inverted": [80.0, 90.0]}, 0.2: {"digits": [3.0, 5.0]}}
        >>> figure = tfbnood.plots.delta_against_contamination(deltas)
        >>> figure.axes[0].get_lines()[0].get_data()[1].tolist()
        [4.0, 1.5]
    """
    if not isinstance(deltas, Mapping) or not deltas:
        raise DataError(f"deltas must be a dict of at least one share. Received: {deltas!r:.50}")
    pools = {share: vectors(deltas[share], f"deltas[{share}]", "all") for share in sorted(deltas)}
    if min(pools) <= 0 or max(pools) > 1:
        raise DataError(f"shares must lie in (0, 1]. Received: {list(pools)}")
    figure = new_figure(7.6, 4.2)
    axes = figure.subplots()
    for index, kind in enumerate(dict.fromkeys(kind for pool in pools.values() for kind in pool)):
        shares = [share for share, pool in pools.items() if kind in pool]
        low, middle, high = np.transpose(
            [np.percentile(pools[share][kind], (10, 50, 90)) for share in shares]
        )
        axes.plot(shares, middle, marker=marker(index), label=kind, **line(index))
        draw_band(axes, shares, low, high, index)
    axes.set_yscale("log")
    share_axis(axes, list(pools))
    axes.set_ylabel("Δ in nats: median, middle 80 %")
    axes.set_title(title or "Δ against contamination")
    legend_beside(axes)
    return figure


def _draw_curves(
    axes: Any, curve: Curve, is_ood: Any, scores: Any, seed: int, area: str, *, drawstyle: str
) -> None:
    for index, (label, values) in enumerate(vectors(scores, "scores", "scores").items()):
        found: Estimate = estimates(is_ood, values, seed=seed)[curve.metric]
        labels = np.asarray(is_ood).astype(int)
        axes.plot(
            *curve.points(labels, values),
            drawstyle=drawstyle,
            label=f"{label}: {area} {found}",
            **line(index),
        )
        draw_band(axes, ALONG, *curve_band(curve, labels, values, seed=seed), index)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.01)


def _draw_histogram(
    axes: Any, heights: np.ndarray, edges: np.ndarray, index: int, label: str
) -> None:
    style = line(index)
    axes.stairs(heights, edges, fill=True, alpha=0.15, color=style["color"])
    axes.stairs(heights, edges, label=label, linewidth=1.5, **style)


def _number_style(values: np.ndarray) -> str:
    """Four digits of the largest value; the others have as many decimals, to be compared at a glance."""
    largest = np.abs(values).max()
    if not 1e-3 <= largest < 1e6:
        return ".4g"
    return f".{max(0, 3 - math.floor(math.log10(largest)))}f"


def _within_one(values: np.ndarray, name: str) -> np.ndarray:
    if values.min() < 0 or values.max() > 1:
        raise DataError(
            f"{name} must lie in [0, 1]. Received: values from {values.min():g} to {values.max():g}"
        )
    return values
