"""Extracts scores from the predict answers of a served model, row by row."""

import base64
import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tfbnood.data.files import read_image

__all__ = ["Row", "picture_of", "rows_of", "signature_of", "unpacked"]

WATCHED = ("serving_default", "uint8", "encoded")
"""Signatures that score every row independently."""

_SIGNATURE = re.compile(rb'"signature_name"\s*:\s*"([^"]*)"')
_MOST_BYTES = 2**30


class Row(NamedTuple):
    """Score, p-value and cluster, if the answer has them, and whether the row was a valid image."""

    score: float
    p_value: float | None
    valid: bool
    group: int | None = None


def unpacked(body: bytes, encoding: str | None) -> bytes:
    """A body without its Content-Encoding, if that is gzip.

    Example:
        >>> import gzip
        >>> unpacked(gzip.compress(b"{}"), "gzip"), unpacked(b"{}", None)
        (b'{}', b'{}')
    """
    if (encoding or "").strip().lower() != "gzip":
        return body
    return zlib.decompressobj(31).decompress(body, _MOST_BYTES)


def signature_of(request: bytes) -> str:
    """The signature that a request names, found without parsing megabytes of pixels.

    Example:
        >>> signature_of(b'{"signature_name": "encoded", "instances": []}'), signature_of(b'{"instances": []}')
        ('encoded', 'serving_default')
    """
    found = _SIGNATURE.search(request)
    return (found[1].decode("utf-8", "replace") if found else "") or "serving_default"


def rows_of(answer: bytes) -> list[Row] | None:
    """The rows of an answer in either format; None for an answer without scores.

    Example:
        >>> rows_of(b'{"predictions": [{"score": 0.5, "valid": true}]}')
        [Row(score=0.5, p_value=None, valid=True, group=None)]
        >>> rows_of(b'{"outputs": {"score": [0.5], "p_value": [0.25]}}')[0].p_value, rows_of(b'{"outputs": [1, 2]}')
        (0.25, None)
    """
    try:
        content = json.loads(answer)
        if "predictions" in content:
            rows = content["predictions"]
        else:
            names = ("score", "p_value", "valid", "cluster")
            outputs = {name: content["outputs"].get(name) for name in names}
            count = len(outputs["score"])
            columns = {name: one for name, one in outputs.items() if one is not None}
            rows = [{name: one[row] for name, one in columns.items()} for row in range(count)]
        return [_row(row) for row in rows]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _row(row: Mapping[str, Any]) -> Row:
    # As float32, which the graph computed: its text may have fewer digits than a float64.
    score = float(np.float32(row["score"]))
    p_value, group = row.get("p_value"), row.get("cluster")
    valid = bool(row.get("valid", True)) and math.isfinite(score)
    return Row(
        score,
        None if p_value is None else float(p_value),
        valid,
        None if group is None else int(group),
    )


def picture_of(request: bytes, row: int, image_shape: tuple[int, int, int]) -> np.ndarray | None:
    """The image in a row of a request, uint8 `[height, width, channels]`.

    Example:
        >>> picture_of(b'{"instances": [[[[7]]], [[[9]]]]}', 1, (1, 1, 1)).tolist()
        [[[9]]]
    """
    content = json.loads(request)
    if "instances" in content:
        one = content["instances"][row]
        if isinstance(one, dict) and "b64" not in one:
            (one,) = one.values()
    else:
        inputs = content["inputs"]
        if isinstance(inputs, dict):
            (inputs,) = inputs.values()
        one = inputs[row]
    if isinstance(one, dict):
        return read_image(base64.b64decode(one["b64"]), image_shape)[0]
    pixels = np.clip(np.round(np.asarray(one, np.float64)), 0, 255).astype(np.uint8)
    return pixels if pixels.shape == tuple(image_shape) else None
