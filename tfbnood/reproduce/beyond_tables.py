"""The results of `beyond` as tables in Markdown and as a picture."""

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from tfbnood.files import atomic_path

__all__ = ["batches_table", "deltas_table", "markdown", "plot", "statistics_table"]


def markdown(results: dict[str, Any]) -> str:
    """All tables as Markdown."""
    parts = [f"# Beyond the paper\n\n`{results['command']}`, scale {results['scale']}"]
    parts.append("## Mixing moments instead of samples\n\n" + deltas_table(results))
    for name, study in results["studies"].items():
        if "statistics" in study:
            parts.append(f"## {name}: AUROC\n\n" + statistics_table(study))
        if "batches" in study:
            parts.append(f"## {name}: whole batches\n\n" + batches_table(study))
    return "\n\n".join(parts) + "\n"


def deltas_table(results: dict[str, Any]) -> str:
    """Δ with mixed samples and with mixed moments: AUROC, and images a second of samples → moments."""
    labels = {
        "samples, draws (2, 8)": ("deltas", 0),
        "moments": ("deltas", 1),
        "moments, r1 = 0": ("deltas", 2),
        "samples, draws (1, 1)": ("draws", 0),
        "moments, draws (2, 8)": ("draws", 1),
    }
    lines = [["model", "outliers", "share", *labels, "images a second, draws (1, 1)"]]
    for name, study in results["studies"].items():
        if "deltas" not in study:
            continue
        settings = study["training"]
        rows = [(share, one) for share in settings["delta_shares"] for one in settings["outliers"]]
        for index, (share, outliers) in enumerate(rows):
            cells = [
                _auroc(study[stage], outliers, share, list(study[stage]["statistics"])[place])
                if stage in study
                else ""
                for stage, place in labels.values()
            ]
            speed = ""
            if "speed" in study and not index:
                rates = study["speed"]["images_a_second"]
                ratio = study["speed"]["ratio"]
                speed = f"{rates['samples']:.0f} → {rates['moments']:.0f} ({ratio:.1f}×)"
            lines.append([name, outliers, f"{share:.0%}", *cells, speed])
    return _table(lines)


def statistics_table(study: dict[str, Any], more: Sequence[dict[str, Any]] = ()) -> str:
    """AUROC of every statistic by set and share of outliers; the best of a line in bold.

    Args:
        study: of `beyond`'s results.
        more: evaluations of the same sets, as dictionaries, whose statistics stand beside.
    """
    sources = [study[key] for key in ("statistics", "ratio") if key in study]
    columns = [(source, label) for source in (*sources, *more) for label in source["statistics"]]
    lines = [["outliers", "share", *(f"`{label}`" for _, label in columns)]]
    for share in study["training"]["shares"]:
        for outliers in study["training"]["outliers"]:
            values = [_auroc(source, outliers, share, label) for source, label in columns]
            best = max(value for value in values if value)
            cells = [f"**{value}**" if value == best else value for value in values]
            lines.append([outliers, f"{share:.0%}", *cells])
    return _table(lines)


def batches_table(study: dict[str, Any]) -> str:
    """Shares of batches that each test found."""
    found = study["batches"]
    kinds = list(found["batches"])
    share = f"{found['share_of_outliers']:.0%}"
    names = [kind if kind in ("fresh", "one class only") else f"{share} {kind}" for kind in kinds]
    lines = [[f"batches of {found['images_a_batch']} with p ≤ {found['level']:.0%}", *names]]
    for test, shares in {**study.get("mmd", {}), **found["found"]}.items():
        lines.append([test, *(f"{shares[kind]:.0%}" for kind in kinds)])
    return _table(lines)


def _auroc(evaluation: dict[str, Any], outliers: str, share: float, label: str) -> str:
    """An AUROC to three digits, or nothing where it was not measured."""
    for row in evaluation["rows"]:
        if (row["set"], row["contamination"], row["statistic"]) == (outliers, share, label):
            return f"{row['auroc']['value']:.3f}"
    return ""


def _table(lines: list[list[str]]) -> str:
    header, *rows = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([header, "|" + " --- |" * len(lines[0]), *rows])


def plot(results: dict[str, Any], path: pathlib.Path) -> None:
    """AUROC against the share of outliers, one panel a set: what holds in a mixed stream and what does not."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install tfbnood[plots]", file=sys.stderr)
        return
    shown = {
        "ensemble": "#0072B2",
        "bn_moments": "#56B4E9",
        "bn_delta": "#D55E00",
        "pixel_knn": "#009E73",
        "log_prob": "#CC79A7",
    }
    panels = [
        (name, study, outliers)
        for name, study in results["studies"].items()
        if "statistics" in study
        for outliers in study["training"]["outliers"]
    ]
    if not panels:
        return
    figure = Figure(figsize=(2.6 * len(panels), 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (name, study, outliers) in zip(axes, panels, strict=True):
        shares = study["training"]["shares"]
        for label, colour in shown.items():
            values = [float(_auroc(study["statistics"], outliers, one, label)) for one in shares]
            axis.plot(range(len(values)), values, marker="o", color=colour, label=label)
        axis.set_xticks(range(len(shares)), [f"{share:.0%}" for share in shares])
        axis.set_title(f"{name}\nvs {outliers}", fontsize=9)
        axis.set_xlabel("share of outliers in the pool")
        axis.axhline(0.5, color="#999999", linewidth=0.8, linestyle=":")
        axis.set_ylim(0, 1.02)
    axes[0].set_ylabel("AUROC")
    axes[0].legend(fontsize=8, loc="lower left")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100)
