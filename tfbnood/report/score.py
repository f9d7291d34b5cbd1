"""The page of `tfbnood score`: the most suspicious images first, and a slider for the false-alarm rate."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfbnood._core.checks import check_integer
from tfbnood.errors import DataError
from tfbnood.plots.style import check_length, vector, within_one
from tfbnood.report.document import data_block, document, escape
from tfbnood.report.pictures import LARGE, THUMBNAILS, encode_all, encode_map, image_reader
from tfbnood.report.score_parts import (
    HISTOGRAM,
    card_box,
    dialog_html,
    explore_html,
    notes_html,
    static_html,
)
from tfbnood.report.words import by_chance, flagged_words, percent, rate_words

__all__ = ["most_suspicious", "rate_steps", "score_page"]

_CHUNK = 64  # thumbnails read at once
_LARGE_SHARE = 0.25  # of the bytes
# Names, numbers, style and script: what a page needs besides its pictures.
_BYTES_PER_NAME, _BYTES_ALWAYS = 160, 100_000


def most_suspicious(p_values: Any, scores: Any, count: int | None = None) -> np.ndarray:
    """Rows by p-value, the smallest first; ties are ordered by score, the highest first, `[count]`.

    Args:
        p_values: `[n]`.
        scores: `[n]`, higher means more out-of-distribution.
        count: number of rows. Defaults to all.

    Example:
        >>> most_suspicious([0.5, 0.01, 0.01], [1.0, 7.0, 9.0])
        array([2, 1, 0])
    """
    return np.lexsort((-np.asarray(scores, np.float64), np.asarray(p_values)))[:count]


def rate_steps(calibration_images: int, start: float) -> list[float]:
    """The false-alarm rates of the slider: about ten per decade from 1/(n + 1) to 0.5, and the initial one.

    Example:
        >>> rate_steps(30, 0.05)[:6]
        [0.03225806451612903, 0.04, 0.05, 0.06, 0.08, 0.1]
    """
    least = 1 / (calibration_images + 1)
    nice = (
        float(f"{first}e-{power}")
        for power in range(1, 10)
        for first in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    )
    return sorted({least, start, *(rate for rate in nice if least < rate <= 0.5)})


def score_page(
    names: Sequence[str],
    images: np.ndarray | Callable[[int], np.ndarray],
    scores: Any,
    p_values: Any,
    *,
    calibration_images: int,
    fpr: float = 0.01,
    fdr: float | None = None,
    batch_p_value: float | None = None,
    batch_words: str = "",
    where: Mapping[int, np.ndarray] | None = None,
    why: Mapping[int, Sequence[tuple[str, float]]] | None = None,
    why_words: str = "",
    converted: Sequence[str] = (),
    card: Mapping[str, Any] | None = None,
    title: str = "",
    detailed: int = 200,
    most_bytes: float = 29e6,
    progress: bool = False,
) -> str:
    """A self-contained HTML page about scored images: 10,000 of them take less than 30 MB.

    Args:
        names: of the n files; any text.
        images: uint8 `[n, height, width, channels]`; or a function from row to uint8 `[height, width, channels]`, for
            images of several sizes or more than the memory holds. It is called twice for some rows.
        scores: `[n]`, higher means more out-of-distribution.
        p_values: `[n]`.
        calibration_images: number n of scores that the p-values compare with; the slider starts at 1/(n + 1).
        fpr: initial false-alarm rate of the slider.
        fdr: instead, initial share of false alarms among the alarms, by Benjamini–Hochberg.
        batch_p_value: of the test whether all images together are in-distribution.
        batch_words: the name of that test.
        where: by row, maps `[height, width]` that cover the picture, higher where the image is more suspicious.
        why: by row, named numbers such as the normal scores of an ensemble's members; 2 and above are drawn as unusual.
        why_words: an explanation of these numbers.
        converted: sentences about the conversion of the files.
        card: facts about the detector: data, date, versions, limits, …
        title: Defaults to the number of images.
        detailed: number of most suspicious images with a large picture, `where` and `why`.
        most_bytes: approximate limit of the page; thumbnails are as large and good as it allows.
        progress: show a bar on a terminal.

    Returns:
        The page, for `write_page`.

    Example:
        >>> images = 255 - x.test[:20]
        >>> found = detector.predict(images, fpr=0.05)
        >>> names = [f"inverted {row}.png" for row in range(20)]
        >>> page = score_page(names, images, found.score, found.p_value, calibration_images=300, fpr=0.05)
        >>> "20 of 20 images look out of place" in page
        True
    """
    names = [str(name) for name in names]
    values = vector(scores, "scores")
    check_length(values, names, "scores", "names")
    chances = within_one(vector(p_values, "p_values"), "p_values")
    check_length(chances, names, "p_values", "names")
    check_integer("calibration_images", calibration_images, least=1)
    check_integer("detailed", detailed, least=0)
    chances = _snap_to_lattice(chances, calibration_images)
    start, words = _find_start(chances, calibration_images, fpr, fdr)
    rates = rate_steps(calibration_images, start)
    read = image_reader(images, len(names))
    order = most_suspicious(chances, values)
    flagged = int((chances <= start).sum())
    budget = max(1e5, most_bytes - _BYTES_ALWAYS - _BYTES_PER_NAME * len(names))
    details = _make_details(
        read, order[:detailed].tolist(), where or {}, why or {}, _LARGE_SHARE * budget
    )
    budget -= sum(map(len, details))
    thumbnails, rung = encode_all(
        read, order.tolist(), THUMBNAILS, most_bytes=budget, progress=progress
    )
    scored = {
        "names": [names[row] for row in order],
        "p": chances[order].tolist(),
        "scores": [float(f"{value:.6g}") for value in values[order]],
        "rates": rates,
        "start": rates.index(start),
        "words": words,
        "calibration": calibration_images,
        "chunk": _CHUNK,
    }
    chunks = [
        data_block(f"thumbnails-{first}", thumbnails[first : first + _CHUNK])
        for first in range(0, len(names), _CHUNK)
    ]
    # Tiny images are enlarged without smoothing; thumbnails of larger ones are smoothed.
    tiny = rung.quality is None
    title = title or f"Report on {len(names):,} {'images' if len(names) > 1 else 'image'}"
    body = "\n".join(
        [
            f'<p class="over"><bdi>{escape(title)}</bdi></p>',
            f'<h1><span id="flagged">{flagged_words(flagged, len(names))}</span> '
            f'<small id="chance">{words}</small></h1>',
            '<section class="overview">',
            HISTOGRAM,
            notes_html(len(names), batch_p_value, batch_words, converted),
            "</section>",
            card_box(card),
            explore_html(rates, start, flagged, len(names), calibration_images, tiny),
            dialog_html(why_words, tiny),
            static_html(names, order, values, chances, start),
        ]
    )
    return document(
        title, body, data=[data_block("scored", scored), *chunks, *details], scripted=True
    )


def _snap_to_lattice(p_values: np.ndarray, calibration_images: int) -> np.ndarray:
    """Restores p-values to multiples of 1/(n + 1), after rounding to float32 or to a few digits."""
    nearest = np.rint(p_values * (calibration_images + 1)) / (calibration_images + 1)
    return np.where(np.abs(nearest - p_values) <= 1e-6 * nearest, nearest, p_values)


def _find_start(
    p_values: np.ndarray, calibration_images: int, fpr: float, fdr: float | None
) -> tuple[float, str]:
    """The initial rate, and what to compare the number of flagged images with."""
    least = 1 / (calibration_images + 1)
    if fdr is not None:
        from tfbnood.calibration.conformal import benjamini_hochberg

        alarms = p_values[benjamini_hochberg(p_values, fdr)]
        # Without any alarm: below every p-value.
        start = float(alarms.max()) if len(alarms) else min(least, float(p_values.min()) / 2)
        words = (
            f"at a false-discovery rate of {percent(fdr)}: on average, at most {percent(fdr)} of the flagged images "
            "are flagged by chance"
        )
        return start, words
    if not 0 < fpr < 1:
        raise DataError(f"fpr must lie in (0, 1). Received: fpr={fpr}")
    if fpr < least:
        raise DataError(
            f"fpr must be at least 1/(calibration_images + 1) = {least:.2g}, or no image can be flagged. "
            f"Received: fpr={fpr}, calibration_images={calibration_images}"
        )
    return fpr, rate_words(fpr, by_chance(len(p_values), fpr, calibration_images))


def _make_details(
    read: Callable[[int], np.ndarray],
    rows: list[int],
    where: Mapping[int, np.ndarray],
    why: Mapping[int, Sequence[tuple[str, float]]],
    most_bytes: float,
) -> list[str]:
    """What the dialog shows of the most suspicious images, one element per image."""
    if not rows:
        return []
    pictures, _ = encode_all(read, rows, LARGE, most_bytes=most_bytes)
    found = []
    for index, (row, picture) in enumerate(zip(rows, pictures, strict=True)):
        content: dict[str, Any] = {"picture": picture}
        if row in where:
            content["where"] = encode_map(where[row])
        if row in why:
            content["why"] = [[str(name), float(f"{one:.4g}")] for name, one in why[row]]
        found.append(data_block(f"detail-{index}", content))
    return found
