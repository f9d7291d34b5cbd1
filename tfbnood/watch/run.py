"""The loop: turns items into lines, a page, metrics and messages until a signal, the end of the source or an alarm."""

import contextlib
import dataclasses
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfbnood._core.files import atomic_path
from tfbnood._core.signals import handle_signals
from tfbnood.errors import TfbnoodError
from tfbnood.watch.items import Item, Source
from tfbnood.watch.metrics import Metrics, Snapshot, serve_metrics, snapshot
from tfbnood.watch.page import write_timeline
from tfbnood.watch.proxy import ProxySource
from tfbnood.watch.session import Session
from tfbnood.watch.words import alarm_sentences, state_words

__all__ = ["ALARM", "PAGE", "Watch"]

ALARM = 3
"""The exit code of a watch that ended with an alarm."""

PAGE = "timeline.html"
_RESTART = "restart"
# In seconds.
_POLL, _STATUS_SECONDS, _METRICS_SECONDS, _PAGE_SECONDS, _TRY_AGAIN = 0.2, 1.0, 0.5, 5.0, 10.0


@dataclasses.dataclass
class Watch:
    """One watch, from its start to its end.

    Args:
        out: folder that `open_session` opens, for the page.
        stream: what is watched, for display.
        open_session: opens the session; again after a full disk, for a source that others depend on.
        make_source: called once, with the first session.
        until_alarm: end as soon as the alarm is on.
        restart: clear the alarm at the start; if another process watches in `out`, it clears the alarm, and this one
            ends.
        forget: with `restart`, as for `Monitor.restart`.
        metrics_port: of this machine; None for no metrics, 0 for a free one.
        say: prints a line for the user.
    """

    out: pathlib.Path
    stream: str
    open_session: Callable[[], contextlib.AbstractContextManager[Session]]
    make_source: Callable[[Session], Source]
    until_alarm: bool = False
    restart: bool = False
    forget: bool = False
    metrics_port: int | None = None
    say: Callable[[str], None] = lambda text: print(text, flush=True)

    def __post_init__(self) -> None:
        self._source: Source | None = None
        self._metrics: Metrics | None = None
        self._stop_asked = False
        self._failed = ""
        self._unwatched = 0
        self._page_lines, self._page_at, self._measured_at = -1, 0.0, 0.0
        self._trouble = ""
        self._mismatched = False
        self._status = _Status()

    def run(self) -> int:
        """Watches; returns the exit code, 0 or `ALARM`.

        Raises:
            TfbnoodError: if the folder cannot be used or written, or a port is taken. Everything counted is kept.
        """
        if self.restart and Session.is_open(self.out):
            self._hand_over()
            return 0
        with handle_signals(self._ask_to_stop), contextlib.ExitStack() as stack:
            stack.callback(self._status.clear)
            while True:
                try:
                    with self.open_session() as session:
                        if self._source is None:
                            self._start(session, stack)
                        assert self._source is not None
                        return self._follow(session, self._source)
                except TfbnoodError as error:
                    # A proxy's clients must not suffer from our disk.
                    if not isinstance(self._source, ProxySource):
                        raise
                    self._pass_unwatched(self._source, error)

    def _start(self, session: Session, stack: contextlib.ExitStack) -> None:
        if self.metrics_port is not None:
            self._metrics = Metrics(snapshot(session))
            server, _ = serve_metrics(self._metrics, self.metrics_port)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            self._line(f"metrics: http://127.0.0.1:{server.server_port}/metrics")
        if session.tally.lines:
            self._line(f"resumed: {state_words(session)}")
        if self.restart:
            self._restart(session, forget=self.forget)
        elif session.monitor.alarm:
            self._report_alarm(session)
        self._source = self.make_source(session)

    def _hand_over(self) -> None:
        """Asks the process that watches here to clear the alarm: a proxy must not be stopped for that."""
        with atomic_path(self.out / _RESTART) as temporary:
            temporary.write_text("forget" if self.forget else "")
        self.say(f"--restart: passed to the process that is watching in {self.out}")

    def _restart_if_asked(self, session: Session) -> None:
        path = self.out / _RESTART
        if path.is_file():
            self._restart(session, forget=path.read_text() == "forget")
            # After the line in the journal: repeating it would change nothing.
            path.unlink()

    def _restart(self, session: Session, *, forget: bool) -> None:
        if not session.monitor.alarm:
            self._line("--restart: the alarm is already off; nothing was changed")
            return
        session.restart(forget=forget)
        less = "; the unusual images are no longer used for comparison" if forget else ""
        self._line(f"--restart: the alarm was cleared{less}")
        self._page_at, self._page_lines = 0.0, -1

    def _follow(self, session: Session, source: Source) -> int:
        self._page(session, source, at_once=True)
        while True:
            if self._stop_asked or (self.until_alarm and session.monitor.alarm):
                source.stop()
            self._restart_if_asked(session)
            items = source.poll(_POLL)
            if items:
                self._report(session, self._take(session, source, items))
            session.save_now_and_then()
            self._notice(source)
            self._page(session, source)
            self._status.show(session)
            if source.finished and not items:
                break
        self._page(session, source, at_once=True, ended=True)
        self._line(f"ended: {state_words(session)}")
        return ALARM if self.until_alarm and session.monitor.alarm else 0

    def _take(
        self, session: Session, source: Source, items: Sequence[Item]
    ) -> list[dict[str, Any]]:
        counted = False
        try:
            events = session.take(items)
            counted = True
        except TfbnoodError:
            self._unwatched += len(items)
            raise
        finally:
            source.done(counted)
        if self._failed:
            self._line(
                f"{self.out} can be written again; {self._unwatched:,} images were not watched"
            )
            self._failed = ""
        return events

    def _report(self, session: Session, events: Sequence[Mapping[str, Any]]) -> None:
        for event in events:
            if event.get("discovery"):
                self._line(f"outlier: {event['key']} (p = {event['p_value']:.2g}, by online FDR)")
        for note in session.notes:
            self._line(f"note: {note.replace('set thin= to', 'set --thin to')}")
        session.notes.clear()
        if any("since" in event for event in events):
            self._page_at = 0.0
            self._report_alarm(session)

    def _report_alarm(self, session: Session) -> None:
        first, *others = alarm_sentences(session)
        self._line(f"{first.upper() if not others else first.replace('Alarm', 'ALARM', 1)}")
        for sentence in others:
            self._line(f"  {sentence}")
        self._line(f"  Look at {self.out / PAGE}; clear the alarm with --restart.")

    def _notice(self, source: Source) -> None:
        """Reports when the folder or the server disappears, and when it is back; once each."""
        trouble = getattr(source, "missing", "") or getattr(source, "trouble", "")
        if trouble and not self._trouble:
            self._line(f"{self.stream} cannot be reached ({trouble}); waiting until it is back")
        elif self._trouble and not trouble:
            self._line(f"{self.stream} is back")
        self._trouble = trouble
        if getattr(source, "mismatched", 0) and not self._mismatched:
            self._mismatched = True
            self._line(
                "the p-values of answers are not those of WHAT: another model is served; its answers are passed on, "
                "but not counted"
            )

    def _page(
        self, session: Session, source: Source, *, at_once: bool = False, ended: bool = False
    ) -> None:
        now, lines = time.monotonic(), session.tally.lines
        if self._metrics is not None and (at_once or now - self._measured_at > _METRICS_SECONDS):
            self._measured_at = now
            self._metrics.latest = self._snapshot(session, source)
        if at_once or (lines != self._page_lines and now - self._page_at >= _PAGE_SECONDS):
            self._page_lines, self._page_at = lines, now
            refresh = None if ended else int(_PAGE_SECONDS)
            write_timeline(self.out / PAGE, session, self.stream, refresh=refresh)

    def _snapshot(self, session: Session, source: Source) -> Snapshot:
        proxy = source if isinstance(source, ProxySource) else None
        writable = not self._failed
        return snapshot(session, source_up=not self._trouble, writable=writable, proxy=proxy)

    def _pass_unwatched(self, source: ProxySource, error: TfbnoodError) -> None:
        """Passes answers on for a while without counting them, then tries a new session."""
        if not self._failed:
            self._failed = str(error)
            self._line(f"{error}: answers are passed on unwatched until it is writable")
        if self._metrics is not None:
            gauges = {**self._metrics.latest.gauges, "writable": 0.0}
            self._metrics.latest = dataclasses.replace(self._metrics.latest, gauges=gauges)
        end = time.monotonic() + _TRY_AGAIN
        while time.monotonic() < end:
            if self._stop_asked:
                source.stop()
                if source.finished:
                    raise error
            items = source.poll(_POLL)
            self._unwatched += len(items)
            source.unwatched += len(items)
            source.done(False)

    def _line(self, text: str) -> None:
        self._status.clear()
        self.say(text)

    def _ask_to_stop(self, *_: object) -> None:
        # While a detector is being loaded there is nothing to finish; and a user who asks twice does not want to wait.
        if self._source is None or self._stop_asked:
            raise KeyboardInterrupt
        self._stop_asked = True


class _Status:
    """One line on a terminal that is overwritten; elsewhere nothing."""

    def __init__(self) -> None:
        self._shown = bool(getattr(sys.stderr, "isatty", lambda: False)())
        self._at, self._there = 0.0, False

    def show(self, session: Session) -> None:
        if self._shown and time.monotonic() - self._at > _STATUS_SECONDS:
            self._at, self._there = time.monotonic(), True
            # A line that is too long could not be overwritten.
            words = state_words(session)[: shutil.get_terminal_size().columns - 1]
            print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._there:
            self._there = False
            print("\r\033[K", end="", file=sys.stderr, flush=True)
