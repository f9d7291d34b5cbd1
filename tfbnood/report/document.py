"""A self-contained HTML file: style and script inside, and a policy that forbids every connection."""

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

# What a browser would take for the end of the block or the start of a comment, even inside a JSON string.
_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def escape(text: Any) -> str:
    r"""Any text as HTML, safe within elements and quoted attributes.

    Bytes of a file name that are not UTF-8 are shown as Python's escapes; a page cannot hold them.

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
    """A complete page around a body, in the style that all pages share.

    The policy allows only this style, this script and pictures inside the file. Nothing can be fetched or sent, and
    markup in a name does not run. `style` attributes are forbidden as well.

    Args:
        title: of the window.
        body: HTML of the main part; user content must be passed through `escape` first.
        data: elements for the script, needed for the first view.
        scripted: add the script, which sorts tables marked `data-sortable` and runs the page of scores.
        refresh: seconds after which a browser reloads the file. Defaults to never.

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
        # Before anything that could violate it.
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
    # At the end, so that the page responds before its thumbnails are read.
    parts += ["\n".join(rest), "\n</body></html>\n"]
    return "".join(parts)


def write_page(path: str | os.PathLike, page: str) -> None:
    """Writes a page atomically.

    Example:
        >>> write_page(folder / "report.html", document("Report", "<h1>Report</h1>"))
        >>> (folder / "report.html").read_text("utf-8").startswith("<!doctype html>")
        True
    """
    with atomic_path(path) as temporary:
        # As bytes: other line endings would change the hash of the script, which browsers check.
        temporary.write_bytes(page.encode("utf-8"))


@functools.cache
def _resource(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
    return f"'sha256-{digest}'"
