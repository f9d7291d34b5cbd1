"""The parts of the page of scores, as HTML; elements that the script fills or moves have ids."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbnood.report.document import escape
from tfbnood.report.parts import card_html, list_html
from tfbnood.report.words import p_value_text, percent

__all__ = ["HISTOGRAM", "card_box", "dialog_html", "explore_html", "notes_html", "static_html"]

_STATIC_ROWS = 100

HISTOGRAM = """<figure class="box" data-scripted hidden><figcaption>p-values
<small>Ordinary images spread evenly along the line; by chance, 95 % of the bars lie in the band.</small>
</figcaption>
<div id="histogram"></div></figure>"""


def notes_html(count: int, p_value: float | None, words: str, converted: Sequence[str]) -> str:
    """The result of the test of all images, and how the files were converted."""
    parts = []
    if p_value is not None:
        parts.append(f"<h2>All images together</h2>{_batch_html(count, p_value, words)}")
    if converted:
        parts.append(f"<h2>What was converted</h2>{list_html(converted)}")
    return f'<div class="box" id="notes">{"".join(parts)}</div>' if parts else ""


def _batch_html(count: int, p_value: float, words: str) -> str:
    together = f"Taken together, the {count:,} images" if count > 1 else "The image"
    verb = "look" if count > 1 else "looks"
    if p_value <= 0.01:
        sentence = f"{together} {verb} different from the reference images"
    elif p_value <= 0.05:
        sentence = f"{together} may differ from the reference images"
    else:
        sentence = f"{together} {verb} like the reference images"
    detail = (
        f"p = {p_value_text(p_value)}: the share of ordinary sets of images that look as strange"
    )
    detail += f" ({words})" if words else ""
    return f'<p>{sentence}.</p><p class="muted">{escape(detail)}.</p>'


def card_box(card: Mapping[str, Any] | None) -> str:
    """The detector's card."""
    if not card:
        return ""
    # Open, until the script closes it.
    return (
        '<details class="box" id="card" open><summary>About the detector</summary>'
        f"{card_html(card)}</details>"
    )


def explore_html(
    rates: Sequence[float], start: float, flagged: int, total: int, calibration: int, tiny: bool
) -> str:
    """The bar with the slider and the search, and the area for the thumbnails."""
    images = "images" if total > 1 else "image"
    slider = (
        f'<input type="range" id="rate" min="0" max="{len(rates) - 1}" value="{rates.index(start)}" '
        'aria-describedby="counts" autocomplete="off">'
    )
    return f"""<section id="explore" data-scripted hidden aria-label="The images">
<div class="bar" id="bar">
<div class="rate"><label for="rate">False-alarm rate</label>{slider}<output id="rate-words" for="rate"></output></div>
<span class="counts" id="counts"><b><span id="count">{flagged:,}</span> flagged</b>, <span id="expected"></span> by
chance</span>
<input type="search" id="search" placeholder="Search names" aria-label="Search {total:,} {images} by name"
autocomplete="off" spellcheck="false">
<button type="button" class="button" id="only" aria-pressed="false">Flagged only</button>
<button type="button" class="button" id="save" title="Names, p-values and scores of the flagged images">Save list
</button>
</div>
<p class="found" id="found" role="status"></p>
<div class="grid{" pixelated" if tiny else ""}" id="grid" role="group"
aria-label="Images, most suspicious first; arrows move, Enter opens"></div>
<ul class="paper examples{" pixelated" if tiny else ""}" id="paper"></ul>
<p class="found keys">Arrows move, Enter opens, Escape closes, / searches. The smallest rate that {calibration:,}
calibration images allow is {percent(rates[0])}.</p>
</section>"""


def dialog_html(why_words: str, tiny: bool) -> str:
    """The window for one picture."""
    words = f'<p class="muted">{escape(why_words)}</p>' if why_words else ""
    return f"""<dialog id="one" aria-labelledby="name" tabindex="-1">
<div class="view"><div class="stage"><div class="frame{" pixelated" if tiny else ""}" id="frame">
<img id="picture" alt=""><img id="heat" class="where" alt="" hidden></div></div>
<div class="facts"><div class="head"><h2 id="name" dir="auto"></h2>
<button type="button" class="button" id="close" aria-label="Close">✕</button></div>
<div><p class="big" id="p"></p><p id="p-words"></p><p class="muted" id="facts"></p></div>
<div id="where"><h3>Where</h3><label><input type="checkbox" id="show-where" checked> Show what stands out</label>
<label>Strength <input type="range" id="opacity" min="0" max="100" value="70" aria-label="Strength of the map"></label>
<div class="scale"></div><p class="muted">From ordinary to the strangest place of this image.</p></div>
<div id="why"><h3>Why</h3><div class="why" id="bars"></div>{words}</div>
<div class="move"><button type="button" class="button" id="previous">← Previous</button>
<button type="button" class="button" id="next">Next →</button></div>
</div></div></dialog>"""


def static_html(
    names: Sequence[str], order: np.ndarray, scores: np.ndarray, p_values: np.ndarray, start: float
) -> str:
    """The most suspicious images as a table, for browsers without scripts."""
    rows = "".join(
        f'<tr><td class="left"><bdi>{escape(names[row])}</bdi></td><td>{p_value_text(p_values[row])}</td>'
        f"<td>{scores[row]:.4g}</td><td>{'flagged' if p_values[row] <= start else ''}</td></tr>\n"
        for row in order[:_STATIC_ROWS]
    )
    return f"""<noscript><section><h2>The most suspicious images</h2>
<p>Thumbnails, the slider and the search need JavaScript, which is switched off; nothing is loaded from elsewhere.</p>
<table><thead><tr><th class="left">name</th><th>p-value</th><th>score</th><th></th></tr></thead><tbody>
{rows}</tbody></table></section></noscript>"""
