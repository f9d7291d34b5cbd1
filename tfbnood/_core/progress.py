"""Progress bars: whether one is shown is decided where work begins, and holds for all that is called from there.

Nobody need ask for one: on a terminal and in a notebook a bar appears for whatever takes longer than two seconds.
`TQDM_DISABLE=1` in the environment silences all of them, as in other programs that use tqdm.
"""

import contextlib
import contextvars
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["bar", "showing"]

_PATIENCE = 2.0  # seconds before a bar that nobody asked for
_shown: contextvars.ContextVar[bool | None] = contextvars.ContextVar(
    "tfbnood_progress", default=None
)


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
    """A bar of tqdm's over the items, on a terminal or in a notebook only.

    Args:
        items: what to go through; without them, call `update` of what is returned.
        description: stands before the bar.
        unit: what is counted.
        total: how many, if the items do not say.
        progress: True shows it at once, False never. Defaults to what `showing` says, or else to True after two
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
    """The class that draws here: a widget where there are widgets, text elsewhere."""
    if not notebook:
        from tqdm import tqdm

        return tqdm
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # A notebook without ipywidgets gets text, and need not hear of it.
        from tqdm.auto import tqdm

    return tqdm
