"""Parts that pages share: a card, a list of sentences, a sortable table, a row of examples."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbnood.report.document import escape
from tfbnood.report.pictures import THUMBNAILS, as_url, encode_all, image_reader

__all__ = ["Cell", "Example", "card_html", "examples_html", "list_html", "table_html"]

_EXAMPLE_BYTES = 3e6


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    """An image to show.

    Attributes:
        name: of the file, or another name.
        image: uint8 `[height, width, channels]`, grey or colour.
        note: text below the name, such as the score.

    Example:
        >>> Example("cat.png", np.zeros((32, 32, 3), np.uint8), note="p = 0.003").name
        'cat.png'
    """

    name: str
    image: np.ndarray
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table: HTML that is already safe, and the number or text to sort by."""

    html: str
    value: float | str


def card_html(card: Mapping[str, Any]) -> str:
    """Facts as a list: lists become lists, mappings become "key value, key value".

    Example:
        >>> card_html({"image_size": "32×32", "versions": {"keras": "3.10"}})
        '<dl><dt>image size</dt><dd>32×32</dd><dt>versions</dt><dd>keras 3.10</dd></dl>'
    """
    parts = (
        f"<dt>{escape(str(name).replace('_', ' '))}</dt><dd>{_card_value(value)}</dd>"
        for name, value in card.items()
    )
    return f"<dl>{''.join(parts)}</dl>"


def _card_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return escape(", ".join(f"{name} {one}" for name, one in value.items()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return list_html([str(one) for one in value])
    return escape(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value)


def list_html(sentences: Sequence[str]) -> str:
    """Sentences as a list."""
    return f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in sentences)}</ul>"


def table_html(titles: Sequence[str], rows: Sequence[Sequence[Cell]], *, left: int = 1) -> str:
    """A table that a click on a heading sorts; the first `left` columns are left-aligned."""

    def css(column: int) -> str:
        return ' class="left"' if column < left else ""

    head = "".join(
        f'<th scope="col"{css(column)}>{escape(one)}</th>' for column, one in enumerate(titles)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{css(column)} data-value="{escape(cell.value)}">{cell.html}</td>'
            for column, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    table = f"<table data-sortable><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def examples_html(examples: Sequence[Example]) -> str:
    """Pictures in a row, with names and notes."""
    if not examples:
        return ""
    read = image_reader(lambda row: examples[row].image, len(examples))
    encoded, _ = encode_all(read, range(len(examples)), THUMBNAILS, most_bytes=_EXAMPLE_BYTES)
    tiny = max(max(one.image.shape[:2]) for one in examples) <= 64
    items = "".join(
        f'<li title="{escape(one.name)}"><img alt="{escape(one.name)}" src="{as_url(picture)}">'
        f"<bdi>{escape(one.name)}</bdi><span>{escape(one.note)}</span></li>\n"
        for one, picture in zip(examples, encoded, strict=True)
    )
    return f'<ul class="examples{" pixelated" if tiny else ""}">\n{items}</ul>'
