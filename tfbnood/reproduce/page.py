"""Results as a page: sections of text, tables and a picture, in Markdown and in HTML."""

import base64
import dataclasses
import html
import pathlib
from collections.abc import Sequence

from tfbnood._core.tables import Table, as_html, as_markdown

__all__ = ["Section", "page_as_html", "page_as_markdown"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: right }
th:first-child, td:first-child { text-align: left }
img { max-width: 100% }
"""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        title: its heading.
        text: paragraphs.
        tables: by caption.
        picture: name of a PNG file in the page's folder.
    """

    title: str
    text: Sequence[str] = ()
    tables: Sequence[tuple[str, Table]] = ()
    picture: str | None = None


def page_as_markdown(title: str, sections: Sequence[Section]) -> str:
    """The page in Markdown; pictures are links."""
    parts = [f"# {title}"]
    for section in sections:
        parts += [f"## {section.title}", *section.text]
        for caption, table in section.tables:
            parts += [f"**{caption}**", as_markdown(table)]
        if section.picture:
            parts.append(f"![{section.title}]({section.picture})")
    return "\n\n".join(parts) + "\n"


def page_as_html(title: str, sections: Sequence[Section], folder: pathlib.Path) -> str:
    """The page as one HTML file, pictures inside."""
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for section in sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        parts += [f"<p>{html.escape(text)}</p>" for text in section.text]
        for caption, table in section.tables:
            parts += [f"<p><b>{html.escape(caption)}</b></p>", as_html(table)]
        if section.picture and (folder / section.picture).is_file():
            content = base64.b64encode((folder / section.picture).read_bytes()).decode()
            alt = html.escape(section.title, quote=True)
            parts.append(f'<img alt="{alt}" src="data:image/png;base64,{content}">')
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'
