"""Decodes image files into images of a detector's shape, or gives the reason why not."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from tfbnood._core.images import as_images
from tfbnood.beam.read import UNREADABLE
from tfbnood.data.files import UnreadableImageError, read_image
from tfbnood.errors import DataError

__all__ = ["Decode"]


class Decode(beam.DoFn):
    """(key, bytes) → (key, uint8 image); other content becomes `{"key", "reason"}` with the tag "unreadable".

    Reads files like `tfbnood.data.from_folder`, so that scores equal those of a folder scored in one process. An array
    `[height, width, channels]` instead of bytes is used as it is, if it has the shape.

    Args:
        image_shape: `(height, width, channels)`.
        fit: "crop", "pad" or "stretch".
    """

    def __init__(self, image_shape: tuple[int, int, int], fit: str) -> None:
        self._image_shape, self._fit = image_shape, fit

    def process(self, element: tuple[Any, Any]) -> Iterator[Any]:
        """Decodes one file."""
        key, content = element
        try:
            yield key, self._image(content)
        except UnreadableImageError as error:
            yield beam.pvalue.TaggedOutput(UNREADABLE, {"key": key, "reason": error.reason})
        except DataError as error:
            yield beam.pvalue.TaggedOutput(UNREADABLE, {"key": key, "reason": str(error)})

    def _image(self, content: Any) -> np.ndarray:
        if isinstance(content, np.ndarray):
            return as_images(content[None], self._image_shape, name="image")[0]
        if not isinstance(content, bytes):
            raise DataError(f"image must be bytes or an array. Received: {type(content).__name__}")
        image, _ = read_image(content, self._image_shape, fit=self._fit)
        return image
