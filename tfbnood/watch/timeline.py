"""The charts of the page: evidence along the stream, and p-values against chance."""

import math
from collections.abc import Sequence

import numpy as np

from tfbnood.report.charts import nice_step, svg
from tfbnood.report.document import escape

__all__ = ["evidence_svg", "p_values_svg"]

_BINS = 20


def evidence_svg(
    points: Sequence[Sequence[float]],
    run_length: float,
    *,
    alarms: Sequence[tuple[int, str]] = (),
    onset: tuple[int, int] | None = None,
    label: str,
) -> str:
    """Evidence on a logarithmic scale, the level of the alarm, alarms, and the interval of the onset.

    Args:
        points: `[index, time, log evidence, alarm]` each.
        run_length: the level of the alarm.
        alarms: `(index, words)`.
        onset: the first and the last likely index.
        label: a description for screen readers.

    Example:
        >>> points = [[0, 0.0, -np.inf, 0.0], [1, 1.0, 2.3, 0.0]]
        >>> evidence_svg(points, 100, alarms=[(1, "alarm")], onset=(0, 1), label="Evidence").count("<polyline")
        1
    """
    left, right, top, bottom, width, height = 52, 16, 24, 40, 760, 320
    level = math.log10(run_length)
    logs = [max(0.0, point[2] / math.log(10)) for point in points]
    # Beyond twice the level there is nothing new to see.
    most = min(2 * level, max([1.15 * level, *logs]))
    first, last = (points[0][0], points[-1][0]) if points else (0, 1)
    last = max(last, first + 1)

    def x(index: float) -> float:
        share = (min(max(index, first), last) - first) / (last - first)
        return left + share * (width - left - right)

    def y(log: float) -> float:
        return height - bottom - min(log, most) / most * (height - top - bottom)

    parts = []
    if onset is not None:
        start, stop = x(onset[0]), x(onset[1])
        parts.append(
            f'<rect class="band" x="{start:.1f}" y="{top}" width="{max(2.0, stop - start):.1f}" '
            f'height="{height - top - bottom}"><title>onset: image {onset[0]:,} to {onset[1]:,}</title></rect>'
        )
    for tick in range(0, math.floor(most) + 1, max(1, round(most / 5))):
        parts += [
            f'<line class="axis" x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>',
            f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{_power(tick)}</text>',
        ]
    step = max(1.0, nice_step(last - first))
    for index in step * np.arange(np.ceil(first / step), np.floor(last / step) + 1):
        parts.append(
            f'<text x="{x(index):.1f}" y="{height - bottom + 17}" text-anchor="middle">{int(index):,}</text>'
        )
    line = " ".join(
        f"{x(point[0]):.1f},{y(log):.1f}" for point, log in zip(points, logs, strict=True)
    )
    parts.append(f'<polyline class="curve c0" points="{line}"/>')
    parts += [
        f'<line class="threshold" x1="{left}" x2="{width - right}" y1="{y(level):.1f}" y2="{y(level):.1f}"/>',
        f'<text class="threshold-label" x="{left + 6}" y="{y(level) - 6:.1f}">alarm at {run_length:,.0f}</text>',
    ]
    for index, words in alarms:
        if index >= first:
            end = "end" if x(index) > width / 2 else "start"
            parts += [
                f'<line class="threshold" x1="{x(index):.1f}" x2="{x(index):.1f}" y1="{top}" y2="{height - bottom}"/>',
                f'<text class="threshold-label" x="{x(index):.1f}" y="{top - 8}" text-anchor="{end}">'
                f"{escape(words)}</text>",
            ]
    middle = (left + width - right) / 2
    parts.append(
        f'<text x="{middle:g}" y="{height - 4}" text-anchor="middle">image in the stream</text>'
    )
    return svg(width, height, parts, label)


def p_values_svg(p_values: Sequence[float], *, held_out: int, label: str) -> str:
    """A histogram of p-values, with the height that all bars have by chance.

    Args:
        p_values: `[n]`, in (0, 1].
        held_out: number of held-out images they share, whose randomness affects all of them.
        label: a description for screen readers.

    Example:
        >>> p_values_svg([0.05, 0.5, 1.0], held_out=99, label="p-values").count('class="bars')
        20
    """
    left, right, top, bottom, width, height = 44, 12, 16, 40, 520, 320
    edges = np.linspace(0, 1, _BINS + 1)
    # A bin includes its right edge; rounding must not move a p-value into the next one.
    counts = np.bincount(
        np.clip(np.ceil(np.asarray(p_values) * _BINS - 1e-9).astype(int) - 1, 0, _BINS - 1),
        minlength=_BINS,
    )
    chance = len(p_values) / _BINS
    shared = (len(p_values) + held_out + 1) / (held_out + 2)
    spread = math.sqrt(chance * (1 - 1 / _BINS) * shared)
    most = max(1.0, 1.3 * chance, float(counts.max()))

    def y(count: float) -> float:
        return height - bottom - count / most * (height - top - bottom)

    scale = width - left - right
    parts = []
    for tick in range(0, int(most) + 1, max(1, int(nice_step(most)))):
        parts += [
            f'<line class="axis" x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>',
            f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,}</text>',
        ]
    for count, start, stop in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        hot = " hot" if count > chance + 3 * spread + 1 and stop <= 0.1001 else ""
        parts.append(
            f'<rect class="bars{hot}" x="{left + scale * start + 0.75:.1f}" y="{y(count):.1f}" '
            f'width="{scale / _BINS - 1.5:.1f}" height="{height - bottom - y(count):.1f}">'
            f"<title>{start:.2f} &lt; p ≤ {stop:.2f}: {count:,}, by chance about {chance:.3g}</title></rect>"
        )
    parts.append(
        f'<line class="uniform" x1="{left}" x2="{width - right}" y1="{y(chance):.1f}" y2="{y(chance):.1f}"/>'
    )
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(
            f'<text x="{left + scale * share:.1f}" y="{height - bottom + 17}" text-anchor="middle">{share:g}</text>'
        )
    parts.append(
        f'<text x="{left + scale / 2:g}" y="{height - 4}" text-anchor="middle">p-value</text>'
    )
    return svg(width, height, parts, label)


def _power(exponent: int) -> str:
    if exponent < 6:
        return f"{10**exponent:,}"
    return "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
