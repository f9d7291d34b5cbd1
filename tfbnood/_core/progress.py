"""Progress bars: whether one is shown is decided where work begins, and holds for all that is called from there."""

import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["bar", "showing"]

_shown: contextvars.ContextVar[bool] = contextvars.ContextVar("tfbnood_progress", default=False)


@contextlib.contextmanager
def showing(progress: bool | None) -> Iterator[None]:
    """While open, bars are drawn, or not; None leaves it as the caller's caller chose."""
    token = _shown.set(_shown.get() if progress is None else progress)
    try:
        yield
    finally:
        _shown.reset(token)


def bar(
    items: Iterable | None = None,
    description: str = "",
    *,
    unit: str = "batch",
    total: int | None = None,
    progress: bool | None = None,
) -> Any:
    """A bar of tqdm's over the items, on a terminal only; `progress` overrules `showing`."""
    from tqdm import tqdm

    shown = _shown.get() if progress is None else progress
    # None lets tqdm look for a terminal.
    return tqdm(items, description, unit=unit, total=total, disable=None if shown else True)
