"""Types of option values, for argparse's `type=`, without heavy imports.

Each raises `ArgumentTypeError` with a sentence that starts with "must"; the parser puts the option's name before it.
"""

import argparse
import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfbnood.statistics.base import Statistic

__all__ = [
    "CONTAMINATION",
    "MUTATION",
    "POSITIVE",
    "RATE",
    "StatisticChoice",
    "did_you_mean",
    "integer",
    "statistic",
    "statistic_name",
]


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """A type for integers of at least `least` and, where given, at most `most`."""
    rule = f"at least {least}" if most is None else f"in [{least}, {most}]"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"must be an integer, {rule}. Received: {text}"
            ) from None
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"must be {rule}. Received: {text}")
        return value

    return parse


def _number(rule: str, fits: Callable[[float], bool]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan  # fits no rule
        if not fits(value):
            raise argparse.ArgumentTypeError(f"must {rule}. Received: {text}")
        return value

    return parse


RATE = _number("lie in (0, 1), e.g. 0.01 for one in a hundred", lambda value: 0 < value < 1)
CONTAMINATION = _number("lie in (0, 1]; 1 means outliers alone", lambda value: 0 < value <= 1)
MUTATION = _number("lie in [0, 1); 0 replaces nothing", lambda value: 0 <= value < 1)
POSITIVE = _number("be positive and finite", lambda value: 0 < value < math.inf)


@dataclasses.dataclass(frozen=True)
class StatisticChoice:
    """A statistic as typed: `bn_delta`, or with settings `bn_delta:{"r1": 0, "draws": [2, 8]}`."""

    text: str
    name: str
    settings: dict[str, Any] | None

    def make(self) -> "str | Statistic":
        """The statistic, for the library. A name alone may refer to a detector's own, fitted statistic."""
        if self.settings is None:
            return self.name
        from tfbnood.statistics.registry import get

        return get(self.name, **self.settings)


def statistic(text: str) -> StatisticChoice:
    """A type for the name of a statistic, alone or with settings."""
    name, colon, settings = text.partition(":")
    statistic_name(name)
    if not colon:
        return StatisticChoice(text, name, None)
    try:
        parsed = json.loads(settings)
    except ValueError as error:
        parsed = error
    if not isinstance(parsed, dict):
        reason = f" ({parsed})" if isinstance(parsed, ValueError) else ""
        raise argparse.ArgumentTypeError(
            f'must have a JSON object as settings, e.g. bn_delta:{{"r1": 0}}. Received: {text}{reason}'
        )
    return StatisticChoice(text, name, parsed)


def statistic_name(text: str) -> str:
    """A type for the name of a statistic."""
    from tfbnood.statistics.registry import names

    known = ("auto", *names())
    if text not in known:
        raise argparse.ArgumentTypeError(
            f"must be auto or one of {', '.join(names())}. Received: {text}{did_you_mean(text, known)}"
        )
    return text


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """The end of an error: the known name that the user probably meant, or nothing."""
    close = difflib.get_close_matches(text, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
