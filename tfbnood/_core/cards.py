"""How objects look in a notebook: small HTML without scripts, in the notebook's colours, with all text escaped."""

import base64
import html
import io
from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["card", "gallery", "paragraph"]

_SIDE = 64  # pixels of a thumbnail, at most
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
_FIGURE = "margin:0;text-align:center;font-size:11px;line-height:1.3"


def card(title: str, facts: Mapping[str, str]) -> str:
    """A heading and one line for each fact that is not empty.

    Example:
        >>> card("a < b", {"why": "so"}).startswith("<div><b>a &lt; b</b>")
        True
    """
    rows = "".join(
        f'<tr><th style="{_CELL}">{html.escape(key)}</th><td style="{_CELL}">{html.escape(value)}</td></tr>'
        for key, value in facts.items()
        if value
    )
    return f"<div><b>{html.escape(title)}</b><table>{rows}</table></div>"


def paragraph(text: str, *, strong: str = "") -> str:
    """A paragraph that may begin in bold."""
    start = f"<b>{html.escape(strong)}</b> " if strong else ""
    return f"<p>{start}{html.escape(text)}</p>"


def gallery(images: np.ndarray, captions: Sequence[str], marked: Sequence[bool]) -> str:
    """A row of thumbnails; the marked ones have a frame and bold captions.

    Args:
        images: uint8 `[n, height, width, channels]`.
        captions: n lines.
        marked: n flags.

    Example:
        >>> gallery(x.test[:2], ["one", "other"], [True, False]).count("<img ")
        2
    """
    figures = []
    for image, caption, strong in zip(images, captions, marked, strict=True):
        text = html.escape(caption)
        frame = "#d4145a" if strong else "transparent"
        # Enlarged without smoothing, to show the pixels that the detector saw.
        style = f"border:2px solid {frame};image-rendering:pixelated;min-width:{_SIDE}px"
        figures.append(
            f'<figure style="{_FIGURE}"><img src="{_as_url(image)}" alt="{text}" style="{style}">'
            f"<figcaption>{f'<b>{text}</b>' if strong else text}</figcaption></figure>"
        )
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(figures)}</div>'


def _as_url(image: np.ndarray) -> str:
    from PIL import Image

    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    picture.thumbnail((_SIDE, _SIDE))  # Never enlarges.
    content = io.BytesIO()
    picture.save(content, "PNG")
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
