"""What pictures share: distinguishable colours and lines, figures without pyplot, checks, and files."""

import functools
import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbnood._core.files import atomic_path
from tfbnood.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "CHANCE",
    "check_at_least_one",
    "check_length",
    "draw_band",
    "draw_histogram",
    "legend_beside",
    "line",
    "marker",
    "new_figure",
    "share_axis",
    "vector",
    "vectors",
    "within_one",
    "write_figure",
]

# Okabe & Ito's colours, which colour-blind readers can distinguish.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
# Five dashes for eight colours: a repeated colour gets another dash. Dots are reserved for chance levels.
_DASHES = ("-", "--", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (2, 1)))
_MARKERS = "osD^vPX*h"
CHANCE: Mapping[str, Any] = {"color": "0.4", "linestyle": ":"}


def line(index: int) -> dict[str, Any]:
    """Colour and dashes of the curve with that index, as matplotlib's arguments."""
    return {"color": _COLOURS[index % len(_COLOURS)], "linestyle": _DASHES[index % len(_DASHES)]}


def marker(index: int) -> str:
    """Marker of the curve with that index."""
    return _MARKERS[index % len(_MARKERS)]


def new_figure(width: float, height: float) -> "Figure":
    """Makes an empty figure of a size in inches, unknown to pyplot, so that nobody has to close it."""
    import matplotlib.figure

    figure: Any = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
    # Without pyplot, a notebook has no other picture of a figure; with pyplot, it uses its own.
    figure._repr_png_ = functools.partial(_png, figure)
    return figure


def draw_band(axes: Any, places: Any, low: Any, high: Any, index: int) -> None:
    """Fills the area between two limits of the curve with that index."""
    colour = line(index)["color"]
    axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)


def legend_beside(axes: Any) -> None:
    """Puts the legend to the right of the axes, where it hides no data."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize="small", handlelength=3)


def share_axis(axes: Any, shares: list[float]) -> None:
    """Makes x an axis of shares of outliers in a pool: logarithmic, with one tick per share."""
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{share:g}" for share in shares], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("share of outliers in the pool")


def write_figure(path: str | os.PathLike, figure: "Figure") -> None:
    """Writes a figure in the format of the suffix, atomically."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)


def vector(values: Any, name: str) -> np.ndarray:
    """Checks numbers and returns them as float64 `[n]`, n > 0."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} must be a vector of numbers. Received: {type(values).__name__}"
        ) from None
    if array.ndim != 1 or not len(array):
        raise DataError(
            f"{name} must be a vector of at least one number. Received: shape={array.shape}"
        )
    if not np.isfinite(array).all():
        raise DataError(
            f"{name} must be finite. Received: NaN or infinite values at {np.sum(~np.isfinite(array))} of "
            f"{len(array)} places"
        )
    return array


def vectors(values: Any, name: str, label: str) -> dict[str, np.ndarray]:
    """Checks a vector or a mapping of them and returns a mapping; a lone vector has the given label."""
    if not isinstance(values, Mapping):
        return {label: vector(values, name)}
    if not values:
        raise DataError(f"{name} must hold at least one vector. Received: an empty dict")
    return {str(key): vector(one, f"{name}[{key!r}]") for key, one in values.items()}


def check_length(values: Any, others: Any, name: str, of: str) -> None:
    """Raises unless both have the same length."""
    if len(values) != len(others):
        raise DataError(
            f"{name} must be as many as {of}, {len(others)}. Received: {len(values)} values"
        )


def check_at_least_one(value: int, name: str) -> None:
    """Raises unless a count is at least 1."""
    if value < 1:
        raise DataError(f"{name} must be at least 1. Received: {name}={value}")


def _png(figure: "Figure") -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()


def within_one(values: np.ndarray, name: str) -> np.ndarray:
    if values.min() < 0 or values.max() > 1:
        raise DataError(
            f"{name} must lie in [0, 1]. Received: values from {values.min():g} to {values.max():g}"
        )
    return values


def draw_histogram(
    axes: Any, heights: np.ndarray, edges: np.ndarray, index: int, label: str
) -> None:
    style = line(index)
    axes.stairs(heights, edges, fill=True, alpha=0.15, color=style["color"])
    axes.stairs(heights, edges, label=label, linewidth=1.5, **style)
