"""One HTML file that needs nothing else: its look and script inside, and a policy that forbids every connection."""

import base64
import functools
import hashlib
import importlib.resources
import json
import os
from collections.abc import Iterable
from html import escape as escape_html
from typing import Any

from tfbnood._core.files import atomic_path

__all__ = ["data_block", "document", "escape", "write_page"]

# What a browser would take for the end of the block, or for the start of a comment, also within a JSON string.
_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def escape(text: Any) -> str:
    r"""Any text as HTML, safe within elements and quoted attributes.

    Bytes of a file name that are not UTF-8 are shown as Python writes them; a page could not hold them.

    Example:
        >>> escape('<img src=x onerror="alert(1)">.png')
        '&lt;img src=x onerror=&quot;alert(1)&quot;&gt;.png'
        >>> escape("caf\udce9.png")
        'caf\\udce9.png'
    """
    return escape_html(str(text).encode("utf-8", "backslashreplace").decode("utf-8"), quote=True)


def data_block(name: str, content: Any) -> str:
    r"""JSON for the page's script, as an element that no browser runs.

    Args:
        name: the element's id.
        content: JSON-safe values; NaN and infinite numbers are refused.

    Example:
        >>> data_block("names", ["</script>"])
        '<script type="application/json" id="names">["\\u003c/script\\u003e"]</script>'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def document(
    title: str,
    body: str,
    *,
    data: Iterable[str] = (),
    scripted: bool = False,
    refresh: int | None = None,
) -> str:
    """A whole page around a body, in the look that all pages share.

    The policy allows this style, this script and pictures inside the file; nothing can be fetched or sent, and markup
    that slipped into a name would not run. `style` attributes are not allowed either.

    Args:
        title: of the window.
        body: HTML of the main part; what comes from users must have passed `escape`.
        data: elements for the script: what the first view needs.
        scripted: add the script, which sorts tables marked `data-sortable` and runs the page of scores.
        refresh: seconds after which a browser reads the file again. Defaults to never.

    Example:
        >>> page = document("Two & two", "<h1>Four</h1>")
        >>> "<title>Two &amp; two</title>" in page, "default-src 'none'" in page
        (True, True)
    """
    style = _resource("report.css")
    script = _resource("report.js") if scripted else ""
    policy = "; ".join(
        [
            "default-src 'none'",
            "connect-src 'none'",
            f"script-src {_hash(script)}" if scripted else "script-src 'none'",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        ]
    )
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        # Before anything that could break it.
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">',
        # Browsers ask a server for an icon when a page has none.
        '<link rel="icon" href="data:,">',
        "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh:d}">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>\n<main>\n",
        body,
        "\n</main>\n",
    ]
    first, *rest = list(data) or [""]
    parts.append(first)
    if scripted:
        parts.append(f"\n<script>{script}</script>\n")
    # The page answers before its thumbnails are read.
    parts += ["\n".join(rest), "\n</body></html>\n"]
    return "".join(parts)


def write_page(path: str | os.PathLike, page: str) -> None:
    """Writes a page: whole or not at all.

    Example:
        >>> write_page(folder / "report.html", document("Report", "<h1>Report</h1>"))
        >>> (folder / "report.html").read_text("utf-8").startswith("<!doctype html>")
        True
    """
    with atomic_path(path) as temporary:
        # As bytes: a browser checks the hash of the script, which other ends of lines would change.
        temporary.write_bytes(page.encode("utf-8"))


@functools.cache
def _resource(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
    return f"'sha256-{digest}'"
