"""Tensors to JSON by the rules of TensorFlow Serving's REST API; the counterpart of `rest`."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfbnood.serving.standin.rest import RestError, type_name

__all__ = ["error_body", "response_body"]

# Enough digits to distinguish every number of the type from its neighbours.
_DIGITS = {"float32": 9, "float64": 17}


def error_body(message: str) -> bytes:
    """The JSON body of an error."""
    return json.dumps({"error": message}).encode()


def response_body(outputs: Mapping[str, np.ndarray], *, row: bool) -> bytes:
    """The JSON body for the outputs of a signature; a single output has no name.

    Example:
        >>> response_body({"y": np.array([1.0, 0.2, 1 / 3])}, row=True)
        b'{"predictions": [1.0, 0.2, 0.33333333333333331]}'
    """
    if row:
        _check_rows(outputs)
    columns = {name: _texts(name, outputs[name]) for name in sorted(outputs)}
    if len(columns) == 1:
        (answer,) = map(_join, columns.values())
    elif row:
        rows = zip(*columns.values(), strict=True)
        answer = _join([_object(dict(zip(columns, values, strict=True))) for values in rows])
    else:
        answer = _object(columns)
    return _object({"predictions" if row else "outputs": answer}).encode("utf-8", "surrogateescape")


def _check_rows(outputs: Mapping[str, np.ndarray]) -> None:
    size = None
    for name in sorted(outputs):
        if outputs[name].ndim == 0:
            raise RestError(400, f"Tensor name: {name} has no shape information ")
        if size is not None and len(outputs[name]) != size:
            raise RestError(
                400,
                f"Tensor name: {name} has inconsistent batch size: {len(outputs[name])} expecting: {size}",
            )
        size = len(outputs[name])


def _texts(name: str, array: np.ndarray) -> Any:
    """The JSON texts of the numbers or strings of a tensor, in nested lists of its shape."""
    flat = array.ravel().tolist()
    if array.dtype.name in _DIGITS:
        texts = _format_numbers(array.ravel())
    elif array.dtype == object:
        write = _base64 if name.endswith("_bytes") else _string
        texts = [write(value) for value in flat]
    elif array.dtype == np.bool_:
        texts = ["true" if value else "false" for value in flat]
    elif array.dtype.kind in "iu":
        texts = list(map(str, flat))
    else:
        raise RestError(
            400, f"Failed to write JSON value for tensor type: {type_name(array.dtype.name)}"
        )
    return np.array(texts, object).reshape(array.shape).tolist()


def _format_numbers(numbers: np.ndarray) -> list[str]:
    """Six digits if they restore the same number, else all; always with a point or an exponent."""
    short = [f"{number:.6g}" for number in numbers.tolist()]
    with np.errstate(over="ignore"):
        same = np.array(short, np.float64).astype(numbers.dtype) == numbers
    digits = _DIGITS[numbers.dtype.name]
    return [
        _decimal(text if exact else f"{number:.{digits}g}", number)
        for number, text, exact in zip(numbers.tolist(), short, same.tolist(), strict=True)
    ]


def _decimal(text: str, number: float) -> str:
    if math.isfinite(number):
        return text if "." in text or "e" in text else f"{text}.0"
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _string(value: bytes) -> str:
    return json.dumps(value.decode("utf-8", "surrogateescape"), ensure_ascii=False)


def _base64(value: bytes) -> str:
    return _object({"b64": f'"{base64.b64encode(value).decode()}"'})


def _object(members: Mapping[str, Any]) -> str:
    return (
        f"{{{', '.join(f'{json.dumps(name)}: {_join(text)}' for name, text in members.items())}}}"
    )


def _join(texts: Any) -> str:
    return texts if isinstance(texts, str) else f"[{', '.join(map(_join, texts))}]"
