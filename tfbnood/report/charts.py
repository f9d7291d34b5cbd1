"""Charts without scripts: ROC curves, a histogram, an interval; SVG in the colours of the page's style."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbnood.plots.curves import ROC
from tfbnood.plots.style import vector
from tfbnood.report.document import escape

__all__ = [
    "COLOURS",
    "DASHES",
    "histogram_svg",
    "interval_svg",
    "line_svg",
    "nice_step",
    "roc_svg",
    "svg",
]

# As in tfbnood.plots: five dashes and eight colours have no common factor, so that a repeated colour gets a new dash.
COLOURS, DASHES = 8, 5
_POINTS = 250


def roc_svg(curves: Mapping[str, tuple[Any, Any]], *, label: str) -> str:
    """ROC curves of one set.

    Args:
        curves: by statistic, `(is_ood, scores)`, each `[n]`.
        label: a description for screen readers.

    Example:
        >>> roc_svg({"pixel_pca": ([0, 0, 1, 1], [0.1, 0.4, 0.6, 0.8])}, label="ROC").count("<polyline")
        1
    """
    left, right, top, bottom, side = 40, 10, 8, 40, 270
    width, height = left + side + right, top + side + bottom
    parts = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x, y = left + tick * side, top + (1 - tick) * side
        parts += [
            f'<line class="axis" x1="{x:g}" x2="{x:g}" y1="{top}" y2="{top + side}"/>',
            f'<line class="axis" x1="{left}" x2="{left + side}" y1="{y:g}" y2="{y:g}"/>',
            f'<text x="{x:g}" y="{top + side + 16}" text-anchor="middle">{tick:g}</text>',
            f'<text x="{left - 6}" y="{y + 4:g}" text-anchor="end">{tick:g}</text>',
        ]
    parts.append(
        f'<line class="chance" x1="{left}" y1="{top + side}" x2="{left + side}" y2="{top}"/>'
    )
    for index, (is_ood, scores) in enumerate(curves.values()):
        alarms, found = _thin(*ROC.points(np.asarray(is_ood).astype(int), vector(scores, "scores")))
        points = " ".join(
            f"{left + x * side:.1f},{top + (1 - y) * side:.1f}"
            for x, y in zip(alarms, found, strict=True)
        )
        parts.append(f'<polyline class="curve {_style_line(index)}" points="{points}"/>')
    middle = left + side / 2
    parts.append(f'<text x="{middle:g}" y="{height - 6}" text-anchor="middle">false alarms</text>')
    return svg(width, height, parts, label)


def line_svg(index: int) -> str:
    """The line of a curve, for the legend."""
    parts = [f'<line class="curve {_style_line(index)}" x1="0" x2="28" y1="4" y2="4"/>']
    return svg(28, 8, parts, None)


def interval_svg(value: float, low: float, high: float) -> str:
    """A value with its interval on a line from 0 to 1, small enough for a table."""
    parts = [
        '<line class="axis" x1="0" x2="96" y1="6" y2="6"/>',
        '<line class="axis" x1="48" x2="48" y1="2" y2="10"/>',
        f'<line class="whisker" x1="{96 * low:.1f}" x2="{96 * high:.1f}" y1="6" y2="6"/>',
        f'<circle class="dot" cx="{96 * value:.1f}" cy="6" r="3"/>',
    ]
    return svg(96, 12, parts, None, css="mini")


def histogram_svg(
    values: Any, marks: Sequence[tuple[float, str]] = (), *, label: str, axis: str = "score"
) -> str:
    """A histogram, with vertical lines at some values.

    Args:
        values: `[n]`.
        marks: `(value, words)`.
        label: a description for screen readers.
        axis: what the values are.

    Example:
        >>> histogram_svg([1.0, 2.0, 2.0], [(1.5, "5 %")], label="Scores").count('class="threshold"')
        1
    """
    values = vector(values, "values")
    left, right, top, bottom, width, height = 40, 16, 20 + 15 * len(marks), 38, 640, 300
    shown = [*values, *(value for value, _ in marks)]
    low, high = float(min(shown)), float(max(shown))
    if high == low:
        low, high = low - 0.5, high + 0.5
    bins = int(np.clip(np.sqrt(len(values)) * 1.5, 5, 50))
    counts, edges = np.histogram(values, bins, (low, high))

    def place(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - right)

    def level(count: float) -> float:
        return height - bottom - count / counts.max() * (height - top - bottom)

    parts = []
    for tick in range(0, int(counts.max()) + 1, max(1, int(nice_step(counts.max())))):
        parts += [
            f'<line class="axis" x1="{left}" x2="{width - right}" y1="{level(tick):.1f}" y2="{level(tick):.1f}"/>',
            f'<text x="{left - 8}" y="{level(tick) + 4:.1f}" text-anchor="end">{tick:,}</text>',
        ]
    for count, start, stop in zip(counts, edges[:-1], edges[1:], strict=True):
        x, y = place(start) + 0.75, level(count)
        bar_width, bar_height = max(0.5, place(stop) - x - 0.75), height - bottom - y
        parts.append(
            f'<rect class="bars" x="{x:.1f}" y="{y:.1f}" width="{bar_width:.1f}" height="{bar_height:.1f}">'
            f"<title>{start:.4g} to {stop:.4g}: {count:,}</title></rect>"
        )
    for index, (value, words) in enumerate(sorted(marks)):
        x, y = place(value), 14 + 15 * index
        # Towards the middle, where there is space.
        text = f'x="{x - 6:.1f}" text-anchor="end"' if x > width / 2 else f'x="{x + 6:.1f}"'
        parts += [
            f'<line class="threshold" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 10}" y2="{height - bottom}"/>',
            f'<text class="threshold-label" {text} y="{y}">{escape(words)}</text>',
        ]
    step = nice_step(high - low)
    for value in step * np.arange(np.ceil(low / step), np.floor(high / step) + 1):
        parts.append(
            f'<text x="{place(value):.1f}" y="{height - bottom + 17}" text-anchor="middle">{value:.4g}</text>'
        )
    middle = (left + width - right) / 2
    parts.append(
        f'<text x="{middle:g}" y="{height - 4}" text-anchor="middle">{escape(axis)}</text>'
    )
    return svg(width, height, parts, label)


def _thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Thins a monotone curve to a maximum number of points, evenly spaced along it."""
    if len(x) <= _POINTS:
        return x, y
    along = np.linspace(0, 2, _POINTS)
    return np.interp(along, x + y, x), np.interp(along, x + y, y)


def nice_step(span: float) -> float:
    """1, 2 or 5 times a power of ten, so that an axis gets about five marks."""
    power = float(10 ** np.floor(np.log10(span / 5)))
    return next(one * power for one in (1, 2, 5, 10) if span / (one * power) <= 6)


def _style_line(index: int) -> str:
    return f"c{index % COLOURS} d{index % DASHES}"


def svg(width: float, height: float, parts: Sequence[str], label: str | None, css: str = "") -> str:
    """A drawing made of parts; without a label it is hidden from screen readers."""
    named = 'aria-hidden="true"' if label is None else f'role="img" aria-label="{escape(label)}"'
    css = f' class="{css}"' if css else ""
    return f'<svg{css} viewBox="0 0 {width:g} {height:g}" {named}>{"".join(parts)}</svg>'
