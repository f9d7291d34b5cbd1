"""Results as a page: sections with text, tables and a picture, in Markdown and in HTML."""

import base64
import dataclasses
import html
import pathlib
from collections.abc import Sequence

from tfbnood._core.tables import Table, as_html, as_markdown
from tfbnood.report.document import document

__all__ = ["Section", "page_as_html", "page_as_markdown"]


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
    # A table of contents: there are a dozen sections.
    links = "".join(
        f'<li><a href="#s{index}">{html.escape(section.title)}</a></li>'
        for index, section in enumerate(sections)
    )
    parts = [f"<h1>{html.escape(title)}</h1>", f"<ul>{links}</ul>"]
    for index, section in enumerate(sections):
        parts.append(f'<h2 id="s{index}">{html.escape(section.title)}</h2>')
        parts += [f"<p>{html.escape(text)}</p>" for text in section.text]
        for caption, table in section.tables:
            parts += [
                f"<p><b>{html.escape(caption)}</b></p>",
                f'<div class="scroll">{as_html(table)}</div>',
            ]
        if section.picture and (folder / section.picture).is_file():
            content = base64.b64encode((folder / section.picture).read_bytes()).decode()
            alt = html.escape(section.title, quote=True)
            parts.append(f'<img alt="{alt}" src="data:image/png;base64,{content}">')
    return document(title, "\n".join(parts))
