"""JSON to tensors by the rules of TensorFlow Serving's REST API; independent of HTTP and TensorFlow.

The rules, even the odd ones (uint8 wraps, `1.0` is not an integer), and the error messages are the real server's:
what fails there must fail here, and what passes there must pass here.

They follow the newest servers, `FOLLOWS` (Serving X.Y is built with TensorFlow X.Y). Older servers are known to differ
in two points: they refuse a number that a float cannot hold exactly, or at all, with "without loss of precision", and
they write "Excepting" where newer ones write "Expecting". The releases that changed this are unknown.
"""

import base64
import contextlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = [
    "DEFAULT_SIGNATURE",
    "FOLLOWS",
    "HTTP_OF_TF_CODE",
    "RestError",
    "json_type",
    "parse_json",
    "shown",
    "signature_of",
    "tensors_of",
    "type_name",
]

FOLLOWS = "TensorFlow Serving 2.19–2.20"
DEFAULT_SIGNATURE = "serving_default"

# The codes of TensorFlow's errors (1: cancelled, 2: unknown, 3: invalid argument, …), as the real server maps them.
HTTP_OF_TF_CODE = {
    **{1: 499, 2: 500, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429},
    **{9: 400, 10: 409, 11: 400, 12: 501, 13: 500, 14: 503, 15: 500, 16: 401},
}

_INT32, _INT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
# The range of integers in a request, which is wider than the small dtypes: those wrap.
_INTEGERS = {
    **{"int8": _INT32, "int16": _INT32, "uint8": _INT32, "int32": _INT32, "int64": _INT64},
    **{"uint32": (0, 2**32 - 1), "uint64": (0, 2**64 - 1)},
}
_FLOATS = ("float32", "float64")
_TYPE_NAMES = {"float16": "half", "float32": "float", "float64": "double"}
_SHOWN = 1000

# Python's messages on broken JSON, and those of the real server's parser.
_JSON_ERRORS = (
    ("Expecting property name", "Missing a name for object member."),
    ("Expecting ':'", "Missing a colon after a name of object member."),
    ("Expecting ','", "Missing a comma, } or ] after an object member or array element."),
    ("Unterminated string", "Missing a closing quotation mark in string."),
    ("Invalid control", "Invalid encoding in string."),
    ("Invalid \\", "Invalid escape character in string."),
)


class RestError(Exception):
    """An error answer: an HTTP code and one text."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def _make_error(message: str) -> RestError:
    return RestError(400, message)


def parse_json(body: bytes) -> dict[str, Any]:
    """Reads the JSON object at the start of a body; the rest is ignored, and NaN and Infinity are numbers."""
    # Bytes that are not UTF-8 pass through strings unchanged: the real parser does not look at them.
    text = body.decode("utf-8-sig", "surrogateescape").lstrip(" \t\r\n")
    if not text:
        raise _make_error("JSON Parse error: The document is empty")
    try:
        document, _ = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        said = next((ours for start, ours in _JSON_ERRORS if error.msg.startswith(start)), None)
        raise _make_error(
            f"JSON Parse error: {said or 'Invalid value.'} at offset: {error.pos}"
        ) from error
    except RecursionError as error:
        raise _make_error("JSON Parse error: nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise _make_size_error() from error
    if not isinstance(document, dict):
        raise _make_error(f"JSON Value: {shown(document)} Is not object")
    return document


def signature_of(document: Mapping[str, Any]) -> str:
    """The signature that a request asks for."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise _make_error(
            f"JSON Value: {shown(document)} not formatted correctly. "
            "'signature_name' key must be a string value.",
        )
    return name or DEFAULT_SIGNATURE


def tensors_of(
    document: Mapping[str, Any], inputs: Mapping[str, str]
) -> tuple[dict[str, np.ndarray], bool]:
    """The arrays of a request by input name, and whether it came in row format.

    Args:
        document: a request, from `parse_json`.
        inputs: the signature's inputs: names and dtypes such as `{"images": "float32"}`.

    Example:
        >>> tensors_of({"instances": [256, -1]}, {"x": "uint8"})
        ({'x': array([  0, 255], dtype=uint8)}, True)
    """
    if "instances" in document and "inputs" in document:
        raise _make_error(
            f"JSON Value: {shown(document)} Not formatted correctly expecting only one of 'inputs' or "
            "'instances' keys to exist ",
        )
    try:
        if "instances" in document:
            return _read_rows(document, inputs), True
        if "inputs" in document:
            return _read_columns(document["inputs"], inputs), False
    except RecursionError as error:
        raise _make_error("JSON Value: nested too deeply") from error
    raise _make_error("Missing 'inputs' or 'instances' key")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _make_size_error()
    return number


def _make_size_error() -> RestError:
    return _make_error("JSON Parse error: Number too big to be stored in double.")


# The first of repeated keys counts, as in the real server.
_DECODER = json.JSONDecoder(
    parse_float=_finite, object_pairs_hook=lambda pairs: dict(reversed(pairs))
)


def _read_rows(document: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, np.ndarray]:
    rows = document["instances"]
    if not isinstance(rows, list):
        raise _make_error(
            f"JSON Value: {shown(document)} Expecting 'instances' to be an list/array"
        )
    if not rows:
        raise _make_error(f"JSON Value: {shown(document)} No values in 'instances' array")
    if not _is_named(rows[0]):
        if len(inputs) > 1:
            raise _make_error(
                "instances is a plain list, but expecting list of objects as multiple input tensors "
                "required as per tensorinfo_map",
            )
        for index, row in enumerate(rows):
            if _is_named(row):
                raise _make_error(
                    f"Expecting value/list but got object at item {index} of input list"
                )
        ((name, dtype),) = inputs.items()
        return {name: _stack(rows, dtype, "")}
    for index, row in enumerate(rows):
        _check_keys(row, index, inputs)
    return {
        name: _stack([row[name] for row in rows], dtype, f" key: {name}")
        for name, dtype in inputs.items()
    }


def _check_keys(row: Any, index: int, inputs: Mapping[str, str]) -> None:
    if not _is_named(row):
        raise _make_error(f"Expecting object but got list at item {index} of input list")
    for key in row:
        if key not in inputs:
            raise _make_error(
                f"Failed to process element: {index} key: {key} of 'instances' list. Error: "
                f"INVALID_ARGUMENT: JSON object: does not have named input: {key}",
            )
    if len(row) != len(inputs):
        raise _make_error(
            f"Failed to process element: {index} of 'instances' list. JSON object: {shown(row)} "
            f"keys must be equal to: {','.join(sorted(inputs))}",
        )


def _read_columns(value: Any, inputs: Mapping[str, str]) -> dict[str, np.ndarray]:
    if _is_named(value):
        for name in inputs:
            if name not in value:
                raise _make_error(f"Missing named input: {name} in 'inputs' object.")
        return {name: _tensor(value[name], dtype) for name, dtype in inputs.items()}
    if len(inputs) > 1:
        raise _make_error(
            "inputs is a plain value/list, but expecting an object as multiple input tensors required "
            "as per tensorinfo_map",
        )
    ((name, dtype),) = inputs.items()
    return {name: _tensor(value, dtype)}


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value: dict) -> bool:
    return len(value) == 1 and isinstance(value.get("b64"), str)


def _stack(rows: Sequence[Any], dtype: str, where: str) -> np.ndarray:
    array = _regular_numbers(rows, dtype)
    if array is not None:
        return array
    first: tuple[int, ...] | None = None
    values: list[Any] = []
    for index, row in enumerate(rows):
        shape = _shape(row)
        count = len(values)
        try:
            _fill(row, 0, shape, dtype, values)
            first = shape if first is None else first
            size = len(values) - count
            if size != math.prod(first):
                raise _make_error(f"Expecting tensor size: {math.prod(first)} but got: {size}")
            if shape != first:
                raise _make_error(
                    f"Expecting shape {_format_shape(first)} but got: {_format_shape(shape)}"
                )
        except RestError as error:
            kind = "UNIMPLEMENTED" if error.code == 501 else "INVALID_ARGUMENT"
            raise _make_error(
                f"Failed to process element: {index}{where} of 'instances' list. "
                f"Error: {kind}: {error.message}",
            ) from error
    return _array(values, dtype, (len(rows), *(first or ())))


def _tensor(value: Any, dtype: str) -> np.ndarray:
    array = _regular_numbers(value, dtype) if isinstance(value, list) else None
    if array is not None:
        return array
    shape = _shape(value)
    values: list[Any] = []
    _fill(value, 0, shape, dtype, values)
    return _array(values, dtype, shape)


def _regular_numbers(value: Sequence[Any], dtype: str) -> np.ndarray | None:
    """The array of a regular list of plain numbers, fast; None if `_fill` has to look at every value."""
    shape = _shape(value)
    flat: Sequence[Any] = value
    for size in shape[1:]:
        if set(map(type, flat)) != {list} or set(map(len, flat)) != {size}:
            return None
        flat = list(itertools.chain.from_iterable(flat))
    kinds = set(map(type, flat))
    if dtype in _INTEGERS:
        low, high = _INTEGERS[dtype]
        plain = kinds <= {int} and (not flat or (min(flat) >= low and max(flat) <= high))
    else:
        plain = dtype in _FLOATS and kinds <= {int, float}
    return _array(flat, dtype, shape) if plain else None


def _shape(value: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _fill(value: Any, level: int, shape: tuple[int, ...], dtype: str, values: list[Any]) -> None:
    """Appends the scalars of a nested list in order; refuses what does not fit the shape."""
    if not isinstance(value, list):
        if level != len(shape):
            raise _make_error(
                f"JSON Value: {shown(value)} found at incorrect level: {level + 1} in the JSON DOM. "
                f"Expected at level: {len(shape)}",
            )
        values.append(_scalar(value, dtype))
        return
    if level >= len(shape):
        raise _make_error(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise _make_error(
            f"Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {shape[level]}",
        )
    for item in value:
        _fill(item, level + 1, shape, dtype, values)


def _scalar(value: Any, dtype: str) -> Any:
    if dtype == "string" and isinstance(value, dict):
        return _decode_base64(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if dtype in _FLOATS:
        if number:
            return value
    elif dtype in _INTEGERS:
        low, high = _INTEGERS[dtype]
        if number and isinstance(value, int) and low <= value <= high:
            return value
    elif dtype == "string":
        if isinstance(value, str):
            return _utf8(value)
    elif dtype == "bool":
        if isinstance(value, bool):
            return value
    elif not isinstance(value, dict):
        raise RestError(
            501, f"Conversion of JSON Value: {shown(value)} to type: {type_name(dtype)}"
        )
    raise _make_error(
        f"JSON Value: {shown(value)} Type: {json_type(value)} is not of expected type: {type_name(dtype)}",
    )


def _decode_base64(value: dict) -> bytes:
    if not _is_base64(value):
        raise _make_error(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
    text = "".join(value["b64"].split())
    if not text.endswith("="):  # padding may be left out
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise _make_error("Unable to base64 decode") from error


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise _make_error("JSON Parse error: The surrogate pair in string is invalid.") from error


def _array(values: Sequence[Any], dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "string":
        array = np.empty(len(values), object)
        array[:] = values
    elif dtype in _INTEGERS and dtype != "uint64":
        # Via int64, so that small dtypes wrap rather than fail.
        array = np.array(values, np.int64).astype(dtype)
    elif dtype in _FLOATS:
        try:
            # Via double, as the real server reads numbers; values too large for float32 become infinite.
            with np.errstate(over="ignore"):
                array = np.array(values, np.float64).astype(dtype)
        except OverflowError as error:
            raise _make_size_error() from error
    else:
        array = np.array(values, dtype)
    try:
        return array.reshape(shape)
    except ValueError as error:  # NumPy supports fewer axes than JSON
        raise _make_error(f"a tensor of {len(shape)} dimensions is not supported") from error


def shown(value: Any) -> str:
    """A value for an error message; a large one is cut."""
    text = ""
    with contextlib.suppress(RecursionError):
        for piece in json.JSONEncoder(indent=4).iterencode(value):
            text += piece
            if len(text) > _SHOWN:
                return f"{text[:_SHOWN]}…"
    return text


def json_type(value: Any) -> str:
    """The real parser's name of a value's type."""
    if value is None or isinstance(value, bool):
        return {None: "Null", True: "True", False: "False"}[value]
    kinds = ((dict, "Object"), (list, "Array"), (str, "String"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "Number")


def type_name(dtype: str) -> str:
    """TensorFlow's name of a dtype."""
    return _TYPE_NAMES.get(dtype, dtype)


def _format_shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"
