"""What this package adds to the paper, as tables and a picture, from the results of stages."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfbnood._core.tables import Table
from tfbnood.plots.style import CHANCE, line, marker, new_figure
from tfbnood.reproduce.page import Section
from tfbnood.reproduce.studies import CONTAMINATIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "draw_shares",
    "make_batches_table",
    "make_deltas_table",
    "make_section",
    "make_statistics_table",
]

Studies = Mapping[str, Mapping[str, Any]]
_SHOWN = ("ensemble", "bn_moments", "bn_delta", "pixel_knn", "log_prob")


def make_section(studies: Studies) -> Section:
    """All tables."""
    tables = [("Mixing moments instead of samples: AUROC", make_deltas_table(studies))]
    for name, study in studies.items():
        if "statistics" in study:
            tables.append((f"{name}: AUROC", make_statistics_table(study)))
        if "batches" in study:
            tables.append((f"{name}: whole batches", make_batches_table(study)))
    return Section("Beyond the paper", tables=tables)


def make_deltas_table(studies: Studies) -> Table:
    """Δ with mixed samples and with mixed moments: AUROC, and images per second of samples → moments."""
    labels = {
        "samples, draws (2, 8)": ("deltas", 0),
        "moments": ("deltas", 1),
        "moments, r1 = 0": ("deltas", 2),
        "samples, draws (1, 1)": ("draws", 0),
        "moments, draws (2, 8)": ("draws", 1),
    }
    lines = [["model", "outliers", "share", *labels, "images per second, draws (1, 1)"]]
    for name, study in studies.items():
        if "deltas" not in study:
            continue
        settings = study["settings"]
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
    return lines


def make_statistics_table(study: Mapping[str, Any]) -> Table:
    """AUROC of every statistic by set and share of outliers; the best of a line in bold."""
    sources = [study[key] for key in ("ensemble", "statistics", "ratio") if study.get(key)]
    columns = [(source, label) for source in sources for label in source["statistics"]]
    lines = [["outliers", "share", *(f"`{label}`" for _, label in columns)]]
    for share in CONTAMINATIONS:
        for outliers in study["settings"]["outliers"]:
            values = [_auroc(source, outliers, share, label) for source, label in columns]
            if not any(values):
                continue
            best = max(values)
            cells = [f"**{value}**" if value and value == best else value for value in values]
            lines.append([outliers, f"{share:.0%}", *cells])
    return lines


def make_batches_table(study: Mapping[str, Any]) -> Table:
    """Shares of batches that each test found."""
    found = study["batches"]
    kinds = list(found["batches"])
    share = f"{found['share_of_outliers']:.0%}"
    names = [kind if kind in ("fresh", "one class only") else f"{share} {kind}" for kind in kinds]
    lines = [[f"batches of {found['images_a_batch']} with p ≤ {found['level']:.0%}", *names]]
    tests = {**study.get("mmd", {}), **found["found"], **study.get("batch_means", {})}
    for test, shares in tests.items():
        lines.append([test, *(f"{shares[kind]:.0%}" for kind in kinds)])
    return lines


def _auroc(evaluation: Mapping[str, Any], outliers: str, share: float, label: str) -> str:
    """An AUROC to three digits, or nothing if it was not measured."""
    for row in evaluation["rows"]:
        if (row["set"], row["contamination"], row["statistic"]) == (outliers, share, label):
            return f"{row['auroc']['value']:.3f}"
    return ""


def draw_shares(studies: Studies) -> "Figure":
    """AUROC against the share of outliers, one panel per set: what holds in a mixed stream and what does not."""
    panels = [
        (name, study, outliers)
        for name, study in studies.items()
        if "statistics" in study
        for outliers in dict.fromkeys(row["set"] for row in study["statistics"]["rows"])
    ]
    columns = min(4, max(1, len(panels)))
    rows = -(-len(panels) // columns) or 1
    figure = new_figure(2.6 * columns + 0.4, 2.6 * rows + 0.9)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        name, study, outliers = panel
        for index, label in enumerate(_SHOWN):
            source = study.get("ensemble" if label == "ensemble" else "statistics", {"rows": []})
            values = [
                float(_auroc(source, outliers, share, label) or "nan") for share in CONTAMINATIONS
            ]
            axes.plot(range(len(values)), values, marker=marker(index), label=label, **line(index))
        axes.set_xticks(range(len(CONTAMINATIONS)), [f"{share:.0%}" for share in CONTAMINATIONS])
        axes.set_title(f"{name}\nvs {outliers}", fontsize=9)
        axes.set_xlabel("share of outliers", fontsize="small")
        axes.axhline(0.5, label="chance", **CHANCE)
        axes.set_ylim(0, 1.03)
    for axes in list(grid.flat)[len(panels) :]:
        axes.remove()
    for row in grid:
        row[0].set_ylabel("AUROC")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, 2 * columns))
    return figure
