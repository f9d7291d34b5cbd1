"""The page about a detector: what it was made from, and which false-alarm rates it allows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbnood.plots.style import vector
from tfbnood.report.charts import histogram_svg
from tfbnood.report.document import document, escape
from tfbnood.report.parts import Cell, Example, card_html, examples_html, table_html
from tfbnood.report.words import percent

__all__ = ["detector_page", "possible_rates"]

_RATES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0001)
_MARKS = (0.1, 0.05, 0.01, 0.001)


def possible_rates(calibration_scores: Any) -> list[tuple[float, float, float, float]]:
    """The false-alarm rates that n calibration images allow: `(rate, threshold, low, high)`, the largest first.

    At rate r an image is flagged if at most k − 1 calibration images score as high, k = ⌊r · (n + 1)⌋ ≥ 1. The true
    false-alarm rate depends on the calibration images and is distributed as Beta(k, n + 1 − k), of which low and high
    enclose 95 %.

    Args:
        calibration_scores: `[n]`, higher means more out-of-distribution.

    Returns:
        Rates, the scores above which images are flagged, and the 95 % interval of the true rate.

    Example:
        >>> [round(number, 3) for number in possible_rates(np.arange(99.0))[-1]]  # 1 % is the smallest
        [0.01, 98.0, 0.0, 0.037]

    Reference: Vovk 2012, arXiv:1209.2673, for the distribution of the rate given the calibration images.
    """
    from scipy.stats import beta

    scores = np.sort(vector(calibration_scores, "calibration_scores"))
    found = []
    for rate in sorted({*_RATES, 1 / (len(scores) + 1)}, reverse=True):
        # Rounding errors must not push a multiple of 1/(n + 1) below itself.
        rank = int(np.floor(rate * (len(scores) + 1) + 1e-9))
        if rank >= 1:
            low, high = beta.ppf((0.025, 0.975), rank, len(scores) + 1 - rank)
            found.append((rate, float(scores[len(scores) - rank]), float(low), float(high)))
    return found


def detector_page(
    card: Mapping[str, Any],
    calibration_scores: Any,
    *,
    typical: Sequence[Example] = (),
    untypical: Sequence[Example] = (),
    commands: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
    title: str = "Detector",
) -> str:
    """A self-contained HTML page about a detector.

    Args:
        card: facts about it: data, date, versions, statistic, image size, limits, …
        calibration_scores: `[n]`, such as `detector.calibration.null_of_images(1)`.
        typical: the most typical reference or calibration images.
        untypical: the least typical ones.
        commands: `(purpose, command)`, such as `("Score a folder", "tfbnood score DETECTOR photos/")`.
        notes: sentences above the card.
        title: its name.

    Returns:
        The page, for `write_page`.

    Example:
        >>> scores = detector.calibration.null_of_images(1)
        >>> page = detector_page({"data": "digits"}, scores, commands=[("Score", "tfbnood score here photos")])
        >>> "300 calibration images" in page
        True
    """
    scores = vector(calibration_scores, "calibration_scores")
    rates = possible_rates(scores)
    count, least = len(scores), 1 / (len(scores) + 1)
    marks = [(threshold, percent(rate)) for rate, threshold, _, _ in rates if rate in _MARKS]
    chart = histogram_svg(
        scores,
        marks,
        label=f"Histogram of the scores of {count} calibration images, with thresholds",
        axis="score; higher is stranger",
    )
    parts = [
        f'<p class="over">A detector of images that look out of place</p><h1><bdi>{escape(title)}</bdi>',
        f"<small>calibrated on {count:,} images: false-alarm rates from {percent(least)}</small></h1>",
        "".join(f"<p>{escape(note)}</p>" for note in notes),
        '<section class="overview"><figure class="box"><figcaption>Scores of the calibration images',
        f"<small>Images right of a line are flagged at its rate.</small></figcaption>{chart}</figure>",
        f'<div class="box" id="card"><h2>Card</h2>{card_html(card)}</div></section>',
        f'<div class="two"><section><h2>Possible false-alarm rates</h2>{_rates_html(rates, count)}</section>',
        f"{_commands_html(commands)}</div>",
        _examples("Most typical", typical),
        _examples("Least typical", untypical),
    ]
    return document(title, "\n".join(parts), scripted=True)


def _rates_html(rates: Sequence[tuple[float, float, float, float]], count: int) -> str:
    rows = [
        [
            Cell(percent(rate), rate),
            Cell(f"{1000 * rate:.3g}", rate),
            Cell(f"{threshold:.5g}", threshold),
            Cell(f"{percent(low, 2)} to {percent(high, 2)}", high),
        ]
        for rate, threshold, low, high in rates
    ]
    titles = ("false-alarm rate", "per 1,000 ordinary images", "score above", "true rate, 95 %")
    table = table_html(titles, rows, left=0)
    missing = next((rate for rate in _RATES if rate * (count + 1) < 1 - 1e-9), None)
    more = ""
    if missing is not None:
        needed = int(np.ceil(1 / missing - 1e-9)) - 1
        more = f" A rate of {percent(missing)} needs at least {needed:,} calibration images."
    words = (
        f"With {count:,} calibration images the smallest rate is 1/{count + 1:,} = {percent(1 / (count + 1))}.{more} "
        "The last column shows where the true rate lies: other calibration images would give other thresholds."
    )
    return f'<p>{words}</p><div class="box">{table}</div>'


def _commands_html(commands: Sequence[tuple[str, str]]) -> str:
    if not commands:
        return ""
    parts = "".join(
        f"<p>{escape(words)}</p><pre><code>{escape(command)}</code></pre>"
        for words, command in commands
    )
    return f"<section><h2>How to use it</h2>{parts}</section>"


def _examples(title: str, examples: Sequence[Example]) -> str:
    return f"<section><h2>{title}</h2>{examples_html(examples)}</section>" if examples else ""
