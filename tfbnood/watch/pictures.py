"""Thumbnails of the worst images: kept on arrival, since uploads are moved away and requests leave no file."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from tfbnood.monitor import Exemplar
from tfbnood.report.pictures import Rung, encode
from tfbnood.watch.items import Item

__all__ = ["Pictures"]

_RUNGS = (Rung(64, None), Rung(160, 78))


class Pictures:
    """By index in the stream, encoded thumbnails of the monitor's worst images: at most 16.

    Example:
        >>> from tfbnood.watch import Item
        >>> pictures = Pictures({})
        >>> item = Item("a.png", 9.0, picture=lambda: np.zeros((8, 8, 1), np.uint8))
        >>> pictures.keep([tfbnood.monitor.Exemplar(0, "a.png", 9.0, 0.01)], [{"index": 0}], [item])
        >>> list(pictures.encoded)
        [0]
    """

    def __init__(self, encoded: Mapping[int, str]):
        self.encoded = dict(encoded)

    def keep(
        self, worst: Sequence[Exemplar], events: Sequence[Mapping[str, Any]], items: Sequence[Item]
    ) -> None:
        """Encodes new items that are among the worst, and drops those that no longer are."""
        indices = {one.index for one in worst}
        self.encoded = {index: one for index, one in self.encoded.items() if index in indices}
        for event, item in zip(events, items, strict=True):
            index = event.get("index")
            if index in indices and item.picture is not None:
                # Better a page without a picture than the end of the watch.
                with contextlib.suppress(Exception):
                    if (image := item.picture()) is not None:
                        self.encoded[index] = _encode(image)


def _encode(image: Any) -> str:
    pixels = image[..., 0] if image.shape[-1] == 1 else image
    return encode(pixels, _RUNGS[0] if max(pixels.shape[:2]) <= _RUNGS[0].side else _RUNGS[1])
