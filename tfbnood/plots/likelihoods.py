"""Likelihoods of sets, and by share of outliers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood.errors import DataError
from tfbnood.plots.style import (
    check_at_least_one,
    check_length,
    draw_band,
    draw_histogram,
    legend_beside,
    line,
    marker,
    new_figure,
    vector,
    vectors,
    within_one,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["bits_against_share", "likelihoods"]


def likelihoods(
    bits: Mapping[str, Mapping[str, Any]], *, bins: int = 50, title: str = ""
) -> "Figure":
    """Draws histograms of bits per dimension: one panel per mode of batch normalisation, one colour per set.

    All share the same bins, which span the middle 99 % of every set; values beyond are counted in the outermost bins,
    and the axis states their number.

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
            draw_histogram(axes, counts, edges, names.index(name), label)
        axes.set_title(f"{mode} mode")
        axes.set_ylabel("images per bin")
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
    """Draws mean bits per dimension against the share r of test images in a batch, one curve per set.

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
    shares = within_one(vector(shares, "shares"), "shares")
    curves = vectors(bits, "bits", "test images")
    bands = bands or {}
    if set(bands) - set(curves):
        raise DataError(
            f"bands must have only sets in bits, {list(curves)}. Received: {list(bands)}"
        )
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
