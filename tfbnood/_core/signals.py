"""Ctrl-C and SIGTERM as a request to stop, for work that has to clean up first."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["handle_signals"]


@contextlib.contextmanager
def handle_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handles Ctrl-C and SIGTERM, if called in the main thread, the only one that can.

    Example:
        >>> import signal
        >>> seen = []
        >>> with handle_signals(lambda number, frame: seen.append(number)):
        ...     signal.raise_signal(signal.SIGINT)
        >>> seen == [signal.SIGINT]
        True
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, earlier in before.items():
            signal.signal(each, earlier)
