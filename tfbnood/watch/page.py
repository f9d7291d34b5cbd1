"""The page of a stream: whether it has changed, since when, which images show it, how often that is false."""

import os
import pathlib

from tfbnood.report.document import document, escape, write_page
from tfbnood.report.parts import Cell, card_html, list_html, table_html
from tfbnood.report.pictures import as_url
from tfbnood.report.words import p_value_text
from tfbnood.watch.session import Session
from tfbnood.watch.timeline import evidence_svg, p_values_svg
from tfbnood.watch.words import alarm_sentences, state_words, when

__all__ = ["timeline_page", "write_timeline"]

_SPACE = "\u00a0"  # does not break

_GUARANTEE = (
    "As long as images are like the held-out ones and independent of each other, the average distance between false "
    "alarms is at least {run_length} images, and any {hundredth} images in a row raise one with a probability of at "
    "most 1 %. Similar neighbours (video) and a changing mix of kinds both break this. The first is measured as "
    "autocorrelation; bets are then placed further apart."
)


def write_timeline(
    path: str | os.PathLike[str], session: Session, stream: str, *, refresh: int | None
) -> None:
    """Writes the page atomically."""
    write_page(path, timeline_page(session, stream, refresh=refresh))


def timeline_page(session: Session, stream: str, *, refresh: int | None = None) -> str:
    """The page as HTML.

    Args:
        session: to show.
        stream: what is watched, for display.
        refresh: seconds after which a browser reloads it; None for a watch that has ended.

    Example:
        >>> from tfbnood.watch import HeldOut, Item, Session
        >>> with Session.open(folder / "out", HeldOut("mine", np.arange(99.0), (8, 8, 1), "pixel_pca")) as session:
        ...     events = session.take([Item("<b>.png", 9.0)])
        ...     page = timeline_page(session, "uploads")
        >>> "No change" in page, "&lt;b&gt;.png" in page
        (True, True)
    """
    monitor, tally = session.monitor, session.tally
    if monitor.since is not None:
        title = f"Something has changed since image {int(monitor.since.value):,}"
        words = " ".join(alarm_sentences(session, plain=False)[:3])
    else:
        title = f"No change in {tally.images:,} image{'' if tally.images == 1 else 's'}"
        words = f"{state_words(session)}."
    running = "watching" if refresh is not None else "ended"
    body = [
        f'<p class="over">tfbnood watch · {escape(session.held_out.name)} · <bdi>{escape(stream)}</bdi> · {running}, '
        f"{when(tally.last) if tally.last else 'no image yet'}</p>",
        f"<h1{' class=alarm' if monitor.alarm else ''}>{escape(title)}<small>{escape(words)}</small></h1>",
        _charts(session),
        _worst(session),
        '<section><h2>The stream</h2><div class="two">',
        f'<div class="box">{card_html(_facts(session))}</div>',
        f'<div class="box"><h2>What is guaranteed</h2><p>{escape(_guarantee(monitor.run_length))}</p></div>',
        "</div></section>",
        _past(session),
        _unreadable(session),
    ]
    return document(f"{title} · tfbnood watch", "\n".join(body), scripted=True, refresh=refresh)


def _charts(session: Session) -> str:
    monitor, tally = session.monitor, session.tally
    if not tally.images:
        return '<p class="muted">No images yet.</p>'
    onset = None
    if monitor.since is not None:
        onset = (int(monitor.since.low), int(monitor.since.high))
    alarms = [(one["index"], f"alarm, image {one['index']:,}") for one in tally.raised]
    evidence = evidence_svg(
        tally.points,
        monitor.run_length,
        alarms=alarms[-3:],
        onset=onset,
        label=f"Evidence for a change along {tally.images:,} images",
    )
    shaded = " Shaded: where the change began, with 95 % probability." if onset else ""
    p_values = p_values_svg(
        tally.recent,
        held_out=len(session.held_out.scores),
        label=f"P-values of the latest {len(tally.recent)} images",
    )
    return (
        '<div class="overview"><figure class="box"><figcaption>Evidence for a change<small>Unchanged images reach the '
        f"dashed level at most once in {monitor.run_length:,.0f} images on average.{shaded}</small></figcaption>"
        f'{evidence}</figure><figure class="box"><figcaption>P-values of the latest {len(tally.recent):,} images'
        "<small>The share of held-out images that look as strange. For unchanged images all bars have the same height, "
        f"the blue line.</small></figcaption>{p_values}</figure></div>"
    )


def _worst(session: Session) -> str:
    worst, pictures = session.monitor.worst, session.pictures.encoded
    if not worst:
        return ""
    title = "These show it most" if session.monitor.alarm else "The most unusual images so far"
    items = []
    for one in worst:
        name = escape(one.key or f"image {one.index:,}")
        picture = pictures.get(one.index)
        image = f'<img alt="{name}" src="{as_url(picture)}">' if picture else ""
        note = f"p = {p_value_text(one.p_value)}, image {one.index:,}".replace(" ", _SPACE)
        note = note.replace(f",{_SPACE}", ", ")
        short = escape(pathlib.PurePath(one.key or "").name) or name
        items.append(f'<li title="{name}">{image}<bdi>{short}</bdi><span>{note}</span></li>')
    tiny = max(session.held_out.image_shape[:2]) <= 64
    style = f"examples{' pixelated' if tiny else ''}"
    return f'<section><h2>{title}</h2><ul class="{style}">{"".join(items)}</ul></section>'


def _facts(session: Session) -> dict[str, str]:
    monitor, tally = session.monitor, session.tally
    share = monitor.share
    facts = {
        "images": f"{tally.images:,}",
        "unreadable": f"{tally.unreadable:,}",
        "flagged": f"{tally.flagged:,}, with p ≤ {session.fpr:.3g}; about {tally.images * session.fpr:.3g} by chance",
        "alarms": f"{tally.alarms:,} raised, {tally.restarts:,} cleared",
    }
    if share is not None:
        facts["outliers since then"] = f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"
    if monitor.online_fdr is not None:
        facts["discoveries"] = (
            f"{tally.discoveries:,}, at most {monitor.online_fdr.fdr:.0%} of them false"
        )
    facts["autocorrelation"] = f"{monitor.autocorrelation:.2f}; bets {monitor.thinned} apart"
    groups = session.held_out.groups
    clusters = "" if groups is None else f" in {len(set(groups.tolist()))} clusters"
    facts["detector"] = (
        f"{session.held_out.name}, statistic {session.held_out.statistic}, {len(session.held_out.scores):,} "
        f"held-out images{clusters}"
    )
    return facts


def _guarantee(run_length: float) -> str:
    return _GUARANTEE.format(run_length=f"{run_length:,.0f}", hundredth=f"{run_length / 100:,.0f}")


def _past(session: Session) -> str:
    raised = session.tally.raised
    if not raised:
        return ""
    rows = [
        [
            Cell(escape(when(one["time"])), one["time"]),
            Cell(f"{one['index']:,}", one["index"]),
            Cell(
                f"{one['since'][0]:,} <small>({one['since'][1]:,} to {one['since'][2]:,})</small>",
                one["since"][0],
            ),
            Cell(f"<bdi>{escape(one['key'] or '')}</bdi>", str(one["key"])),
        ]
        for one in reversed(raised)
    ]
    table = table_html(["raised", "at image", "unusual since", "by"], rows)
    return f'<section><h2>Alarms</h2><div class="box">{table}</div></section>'


def _unreadable(session: Session) -> str:
    reasons = [f"{when(time)}: {key}: {reason}" for time, key, reason in session.tally.reasons]
    if not reasons:
        return ""
    count = f"{session.tally.unreadable:,} unreadable; the latest {len(reasons)}"
    return (
        '<section><h2>Without a score</h2><details class="box">'
        f"<summary>{count}</summary>{list_html(reasons[::-1])}</details></section>"
    )
