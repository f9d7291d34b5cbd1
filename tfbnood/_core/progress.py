"""Progress bars. The outermost call decides whether bars are shown, for everything it calls.

By default, on a terminal and in a notebook, a bar appears for anything that takes longer than two seconds.
`TQDM_DISABLE=1` in the environment disables all bars, as in other programs that use tqdm.
"""

import contextlib
import contextvars
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["bar", "showing"]

_PATIENCE = 2.0  # seconds before a bar appears by default
_shown: contextvars.ContextVar[bool | None] = contextvars.ContextVar(
    "tfbnood_progress", default=None
)


@contextlib.contextmanager
def showing(progress: bool | None) -> Iterator[None]:
    """Turns bars on or off in a block; None keeps the setting of the enclosing block."""
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
    """A tqdm bar over the items, only on a terminal or in a notebook.

    Args:
        items: what to iterate over; without them, call `update` of the returned bar.
        description: text before the bar.
        unit: what is counted.
        total: number of items, if they have no length.
        progress: True shows it at once, False never. Defaults to the setting of `showing`, or else to a bar after two
            seconds.
    """
    shown = _shown.get() if progress is None else progress
    notebook = "ipykernel.zmqshell" in sys.modules
    somewhere = notebook or bool(getattr(sys.stderr, "isatty", lambda: False)())
    return _tqdm(notebook)(
        items,
        description,
        unit=unit,
        total=total,
        disable=shown is False or not somewhere or bool(os.environ.get("TQDM_DISABLE")),
        delay=0 if shown else _PATIENCE,
    )


def _tqdm(notebook: bool) -> Any:
    """The class of the bar: a widget if the notebook has widgets, otherwise text."""
    if not notebook:
        from tqdm import tqdm

        return tqdm
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # A notebook without ipywidgets gets text, without a warning.
        from tqdm.auto import tqdm

    return tqdm
