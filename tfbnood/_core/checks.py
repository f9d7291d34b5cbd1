"""Checks of plain arguments."""

from numbers import Integral
from typing import Any

from tfbnood.errors import DataError

__all__ = ["check_integer"]


def check_integer(name: str, value: Any, *, least: int) -> None:
    """Checks a count or a seed."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= int(value) < 2**32:
        raise DataError(
            f"{name} must be an integer of at least {least}. Received: {name}={value!r}"
        )
