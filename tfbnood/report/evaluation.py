"""The page of `tfbnood evaluate`: ROC curves, a sortable table, and the images that were missed."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfbnood.report.charts import interval_svg, line_svg, roc_svg
from tfbnood.report.document import document, escape
from tfbnood.report.parts import Cell, Example, card_html, examples_html, table_html

if TYPE_CHECKING:
    from tfbnood.evaluation.result import Evaluation
    from tfbnood.metrics import Estimate

__all__ = ["RocCurve", "evaluation_page"]

_TITLES = (
    "set",
    "statistic",
    "share of outliers",
    "AUROC",
    "average precision",
    "false alarms at 95 % found",
    "inliers",
    "outliers",
)


@dataclasses.dataclass(frozen=True, eq=False)
class RocCurve:
    """Scores for a ROC curve.

    Attributes:
        set: name of the outliers.
        statistic: label of the statistic.
        is_ood: `[n]`, True or 1 for outliers.
        scores: `[n]`, higher means more out-of-distribution.
        contamination: share of outliers in the pool; 1 means each kind alone.

    Example:
        >>> RocCurve("mnist", "bn_delta", [0, 0, 1, 1], [0.1, 0.4, 0.3, 0.8]).contamination
        1.0
    """

    set: str
    statistic: str
    is_ood: Any
    scores: Any
    contamination: float = 1.0


def evaluation_page(
    result: "Evaluation",
    *,
    curves: Sequence[RocCurve] = (),
    misses: Sequence[Example] = (),
    false_alarms: Sequence[Example] = (),
    card: Mapping[str, Any] | None = None,
    title: str = "Evaluation",
) -> str:
    """A self-contained HTML page about an evaluation.

    Args:
        result: what `tfbnood.evaluate` returned.
        curves: one panel per set and share of outliers.
        misses: outliers that look the most ordinary, e.g. those with the lowest scores.
        false_alarms: inliers that look the most suspicious.
        card: further facts: the detector, the data.
        title: of the page.

    Returns:
        The page, for `write_page`.

    Example:
        >>> result = tfbnood.evaluate(detector, x.test, {"inverted": 255 - x.test})
        >>> missed = tfbnood.report.Example("3.png", 255 - x.test[3], note="score 1.2")
        >>> page = evaluation_page(result, misses=[missed])
        >>> "Outliers that were missed" in page
        True
    """
    parts = [
        f'<p class="over"><bdi>{escape(title)}</bdi></p>',
        f"<h1>{_write_headline(result)}</h1>",
        _curves_html(result, curves),
        f"<section><h2>All numbers</h2>{_table(result)}"
        f'<p class="muted">{escape(_sentence(result.notes))}</p></section>',
        _examples("Outliers that were missed", "They look the most ordinary.", misses),
        _examples("False alarms", "Inliers that look the most suspicious.", false_alarms),
        f'<section><h2>About</h2><div class="box">{card_html({**(card or {}), **_about(result)})}</div></section>',
    ]
    return document(title, "\n".join(parts), scripted=True)


def _write_headline(result: "Evaluation") -> str:
    """The best statistic by mean AUROC over sets and shares, and its hardest set."""
    by_label = {
        label: [row for row in result.rows if row.statistic == label] for label in result.statistics
    }
    means = {
        label: sum(row.auroc.value for row in rows) / len(rows) for label, rows in by_label.items()
    }
    best = max(means, key=means.__getitem__)
    rows = by_label[best]
    if len(rows) == 1:
        words = f"{best} separates {rows[0].set} from inliers with an AUROC of {rows[0].auroc.value:.3f}"
        low, high = rows[0].auroc.low, rows[0].auroc.high
        return f"{escape(words)}<small>95 % interval {low:.3f} to {high:.3f}</small>"
    words = f"{best} reaches a mean AUROC of {means[best]:.3f}"
    hardest = min(rows, key=lambda row: row.auroc.value)
    share = "" if hardest.contamination == 1 else f" at a share of {hardest.contamination:g}"
    small = f"hardest: {hardest.set}{share}, {hardest.auroc.value:.3f}"
    if len(means) > 1:
        others = sorted((label for label in means if label != best), key=lambda one: -means[one])
        small += f"; next best: {others[0]}, {means[others[0]]:.3f}"
    return f"{escape(words)}<small>{escape(small)}</small>"


def _curves_html(result: "Evaluation", curves: Sequence[RocCurve]) -> str:
    panels: dict[tuple[str, float], dict[str, tuple[Any, Any]]] = {}
    for curve in curves:
        panel = panels.setdefault((curve.set, curve.contamination), {})
        panel[curve.statistic] = curve.is_ood, curve.scores
    if not panels:
        return ""
    aurocs = {(row.set, row.contamination, row.statistic): row.auroc for row in result.rows}
    parts = []
    for (name, share), panel in panels.items():
        words = name if share == 1 else f"{name}, {share:g} of the pool"
        chart = roc_svg(panel, label=f"ROC curves of {words}: outliers found against false alarms")
        lines = "".join(
            f"<li>{line_svg(index)}<span>{escape(label)}</span>"
            f"<span>{_auroc(aurocs.get((name, share, label)))}</span></li>"
            for index, label in enumerate(panel)
        )
        parts.append(
            f'<figure class="box"><figcaption><bdi>{escape(words)}</bdi></figcaption>{chart}'
            f'<ul class="legend">{lines}</ul></figure>'
        )
    note = '<p class="muted">Outliers found against inliers that raise an alarm; AUROC on the right.</p>'
    return f'<section><h2>ROC curves</h2>{note}<div class="panels">{"".join(parts)}</div></section>'


def _auroc(found: "Estimate | None") -> str:
    return "" if found is None else f"{found.value:.3f}"


def _table(result: "Evaluation") -> str:
    def estimate(found: "Estimate", *, drawn: bool = False) -> Cell:
        interval = f"<small>{found.low:.3f}–{found.high:.3f}</small>"
        chart = interval_svg(found.value, found.low, found.high) if drawn else ""
        return Cell(f"{found.value:.3f} {interval}{chart}", found.value)

    rows = [
        [
            Cell(f"<bdi>{escape(row.set)}</bdi>", row.set),
            Cell(f"<bdi>{escape(row.statistic)}</bdi>", row.statistic),
            Cell(f"{row.contamination:g}", row.contamination),
            estimate(row.auroc, drawn=True),
            estimate(row.average_precision),
            estimate(row.fpr_at_95_tpr),
            Cell(f"{row.inliers:,}", row.inliers),
            Cell(f"{row.outliers:,}", row.outliers),
        ]
        for row in result.rows
    ]
    return f'<div class="box">{table_html(_TITLES, rows, left=2)}</div>'


def _examples(title: str, words: str, examples: Sequence[Example]) -> str:
    if not examples:
        return ""
    note = f'<p class="muted">{words}</p>'
    return f"<section><h2>{title}</h2>{note}{examples_html(examples)}</section>"


def _about(result: "Evaluation") -> dict[str, Any]:
    known = result.provenance
    shape = "×".join(map(str, known.get("image_shape", ())))
    found = {
        "sets": ", ".join(dict.fromkeys(row.set for row in result.rows)),
        "statistics": ", ".join(result.statistics),
        "model": known.get("model"),
        "image_shape": shape,
        "seed": result.seed,
        "versions": known.get("versions"),
        "machine": known.get("machine"),
    }
    return {name: value for name, value in found.items() if value not in (None, "", {})}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
