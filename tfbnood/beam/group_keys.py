"""From the key of an image to its group."""

import re
from collections.abc import Callable
from typing import Any

from tfbnood.errors import DataError

__all__ = ["group_function"]


def group_function(key: Any) -> Callable[[Any], Any]:
    if callable(key):
        return key
    try:
        pattern = re.compile(key)
    except (re.error, TypeError) as error:
        raise DataError(
            f"key must be a function or a regular expression. Received: key={key!r} ({error})"
        ) from error
    if not pattern.groups:
        raise DataError(
            f"key must have the group in parentheses, as in r'(cam\\d+)/'. Received: key={key!r}"
        )
    return _Searched(pattern)


class _Searched:
    """The parts in parentheses of a regular expression."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def __call__(self, key: Any) -> str | None:
        found = self._pattern.search(str(key))
        return None if found is None else "/".join(part or "" for part in found.groups())
