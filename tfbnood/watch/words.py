"""Sentences about a stream, the same on the terminal and on the page."""

import datetime
import math

from tfbnood.monitor import Estimate
from tfbnood.watch.session import Session

__all__ = ["alarm_sentences", "state_words", "when"]

_NAMED = 5


def when(seconds: float | None) -> str:
    """A time in this machine's time zone.

    Example:
        >>> len(when(0.0)), when(None)
        (19, 'long ago')
    """
    if seconds is None:
        return "long ago"
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def state_words(session: Session) -> str:
    """One line: the number of images, the evidence, and whether the alarm is on."""
    monitor, tally = session.monitor, session.tally
    parts = [f"{_count(tally.images, 'image')}"]
    if tally.unreadable:
        parts.append(f"{tally.unreadable:,} unreadable")
    parts.append(f"{tally.flagged:,} flagged at {100 * session.fpr:.3g} %")
    if monitor.online_fdr is not None:
        parts.append(_count(tally.discoveries, "discovery", "discoveries"))
    if monitor.alarm:
        parts.append(f"ALARM at image {monitor.alarm_index:,}")
    else:
        parts.append(f"no alarm: evidence {_evidence(session)} of {monitor.run_length:,.0f}")
    return ", ".join(parts)


def alarm_sentences(session: Session, *, plain: bool = True) -> list[str]:
    """Sentences about an alarm: when, since when, how many, which images, how often it is false; empty without one.

    Args:
        session: the session to describe.
        plain: name the images, for a terminal; a page shows them.
    """
    monitor, tally = session.monitor, session.tally
    if monitor.alarm_index is None or monitor.since is None:
        return []
    raised = tally.raised[-1] if tally.raised else None
    named = f" ({raised['key']})" if raised and raised["key"] and plain else ""
    time = raised["time"] if raised else tally.time_of(monitor.alarm_index)
    found = [f"Alarm at {when(time)}, image {monitor.alarm_index:,}{named}."]
    since = monitor.since
    at = tally.time_of(int(since.value))
    after = f", {when(at)}" if at is not None else ""
    found.append(
        f"Images have been unusual since image {int(since.value):,}{after}; 95 % interval: {_whole(since)}."
    )
    share = monitor.share
    if share is not None:
        found.append(
            f"About {_percent(share.value)} of the images since then are outliers; 95 % interval: "
            f"{_percent(share.low)} to {_percent(share.high)}."
        )
    worst = [str(one.key) for one in monitor.worst[:_NAMED] if one.key]
    if worst and plain:
        found.append(f"These show it most: {', '.join(worst)}.")
    found.append(
        f"Without a change, an alarm comes at most once in {monitor.run_length:,.0f} images on average."
    )
    return found


def _whole(estimate: Estimate) -> str:
    return f"{int(estimate.low):,} to {int(estimate.high):,}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def _evidence(session: Session) -> str:
    value = math.exp(min(session.monitor.log_evidence, 700))
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"
