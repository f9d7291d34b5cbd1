"""What `tfbnood.evaluate` returns: numbers by set, statistic and contamination, as tables, JSON and pictures."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfbnood._core.cards import paragraph
from tfbnood._core.files import atomic_path, write_json
from tfbnood._core.tables import Table, aligned, as_html, as_markdown
from tfbnood.errors import DataError
from tfbnood.metrics import METRICS, Estimate
from tfbnood.plots.style import (
    CHANCE,
    draw_band,
    line,
    marker,
    new_figure,
    share_axis,
    write_figure,
)

__all__ = ["Bits", "Evaluation", "Row"]


@dataclasses.dataclass(frozen=True)
class Row:
    """One statistic on one set at one contamination, with the number of images the metrics are over."""

    set: str
    contamination: float
    statistic: str
    inliers: int
    outliers: int
    auroc: Estimate
    average_precision: Estimate
    fpr_at_95_tpr: Estimate

    @property
    def prevalence(self) -> float:
        """Share of outliers: the average precision of chance."""
        return self.outliers / (self.inliers + self.outliers)


@dataclasses.dataclass(frozen=True)
class Bits:
    """Mean bits per dimension of a set in evaluation mode, and in training mode in batches of 64 of its own kind."""

    set: str
    images: int
    evaluation: float
    training: float

    @property
    def difference(self) -> float:
        """Training mode minus evaluation mode."""
        return self.training - self.evaluation


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation:
    """The result of `evaluate`; `print` it, `plot` it or `save` it. A notebook shows its tables.

    Attributes:
        rows: by set, contamination and statistic.
        bits_per_dim: inliers first, then every set; empty without a likelihood model.
        statistics: name, scope and settings by the label used in `rows`.
        n: maximum number of images per set; None means all.
        seed: of every random choice.
        reference: the source of the images that statistics were fitted to.
        provenance: model, image shape, versions and machine.
    """

    rows: tuple[Row, ...]
    bits_per_dim: tuple[Bits, ...]
    statistics: Mapping[str, Mapping[str, Any]]
    n: int | None
    seed: int
    reference: str
    provenance: Mapping[str, Any]

    def row(self, set: str, statistic: str, contamination: float = 1.0) -> Row:
        """Looks up one row."""
        for row in self.rows:
            if (row.set, row.statistic, row.contamination) == (set, statistic, contamination):
                return row
        known = sorted({(row.set, row.statistic, row.contamination) for row in self.rows})
        raise DataError(
            f"set, statistic and contamination must be one of {known}. "
            f"Received: {(set, statistic, contamination)}"
        )

    def auroc(self, set: str, statistic: str, contamination: float = 1.0) -> float:
        """Looks up one AUROC."""
        return self.row(set, statistic, contamination).auroc.value

    @property
    def notes(self) -> str:
        """How the numbers were computed, in one line."""
        size = "all images" if self.n is None else f"at most {self.n} images"
        text = f"{size} per set; seed {self.seed}; reference: {self.reference}"
        text += "; intervals: 95 %, bootstrap over images, ± half the length"
        batch = [label for label, about in self.statistics.items() if about["scope"] == "batch"]
        if batch:
            text += (
                f"; {', '.join(batch)}: scores depend on the pool, which has one kind of images at contamination 1 "
                "and is mixed below 1"
            )
        return text

    def __str__(self) -> str:
        tables = [aligned(_make_auroc_table(self))]
        if self.bits_per_dim:
            tables.append(aligned(_make_bits_table(self)))
        return "\n\n".join([*tables, self.notes])

    def __repr__(self) -> str:
        sets = ", ".join(dict.fromkeys(row.set for row in self.rows))
        return f"<Evaluation: {', '.join(self.statistics)} on {sets}; seed {self.seed}>"

    def _repr_html_(self) -> str:
        tables = [
            as_html(table)
            for table in (_make_auroc_table(self), _make_bits_table(self))
            if len(table) > 1
        ]
        return "\n".join([*tables, paragraph(self.notes)])

    def to_markdown(self) -> str:
        """The tables in Markdown, with average precision and false alarms as well."""
        tables = [_make_auroc_table(self), _make_bits_table(self), _make_full_table(self)]
        texts = [as_markdown(table) for table in tables if len(table) > 1]
        return "\n\n".join([*texts, self.notes]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-safe values."""
        content = dataclasses.asdict(self)
        for found, row in zip(content["rows"], self.rows, strict=True):
            found["prevalence"] = row.prevalence
        for found, bits in zip(content["bits_per_dim"], self.bits_per_dim, strict=True):
            found["difference"] = bits.difference
        return json.loads(json.dumps(content, default=str))

    def plot(self) -> Any:
        """Draws AUROC: against contamination for every set, or as bars if there is only one contamination.

        Returns:
            A `matplotlib.figure.Figure`.

        Example:
            >>> digits = tfbnood.data.load("digits").test
            >>> sets = {"inverted": 255 - digits}
            >>> result = tfbnood.evaluate(None, digits, sets, statistics="pixel_pca")
            >>> result.plot().axes[0].get_ylabel()
            'AUROC'
        """
        shares = sorted({row.contamination for row in self.rows})
        sets = list(dict.fromkeys(row.set for row in self.rows))
        panels = len(sets) if len(shares) > 1 else 1
        columns = min(panels, 4)
        rows = -(-panels // columns)
        width = 3.2 * columns if panels > 1 else max(5, 1.2 * len(sets))
        figure = new_figure(width, 3 * rows + 0.5)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for index, axes in enumerate(grid.flat):
            if index >= panels:
                axes.remove()
                continue
            if len(shares) > 1:
                _draw_lines(axes, self, sets[index], shares)
            else:
                _draw_bars(axes, self, sets, shares[0])
            axes.axhline(0.5, label="chance", **CHANCE)
            axes.set_ylim(0, 1.03)
        for axes in grid[:, 0]:
            axes.set_ylabel("AUROC")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.suptitle("AUROC against contamination" if len(shares) > 1 else "AUROC by set")
        # As many rows as names of 1.9 inches need, all of one length.
        lines = -(-len(labels) // int(width / 1.9))
        ncols = -(-len(labels) // lines)
        figure.legend(handles, labels, loc="outside lower center", ncols=ncols)
        return figure

    def save(self, path: str | os.PathLike) -> None:
        """Writes `.json`, `.md` or `.png`, depending on the suffix; without one, all three into a folder."""
        path = pathlib.Path(path)
        if path.is_dir() or not path.suffix:
            for suffix in (".json", ".md", ".png"):
                self.save(path / f"evaluation{suffix}")
        elif path.suffix == ".json":
            write_json(path, self.to_dict())
        elif path.suffix == ".md":
            with atomic_path(path) as temporary:
                temporary.write_text(self.to_markdown())
        elif path.suffix == ".png":
            write_figure(path, self.plot())
        else:
            raise DataError(
                f"path must end in .json, .md or .png, or be a folder. Received: {path}"
            )


def _make_auroc_table(result: Evaluation) -> Table:
    cells: dict[tuple[str, float], list[str]] = {}
    for row in result.rows:
        cells.setdefault((row.set, row.contamination), []).append(str(row.auroc))
    lines = [[name, f"{share:g}", *line] for (name, share), line in cells.items()]
    return [["AUROC", "contamination", *result.statistics], *lines]


def _make_bits_table(result: Evaluation) -> Table:
    lines = []
    for bits in result.bits_per_dim:
        values = f"{bits.evaluation:.3f}", f"{bits.training:.3f}", f"{bits.difference:+.3f}"
        lines.append([bits.set, str(bits.images), *values])
    return [["bits per dim", "images", "evaluation", "training", "difference"], *lines]


def _make_full_table(result: Evaluation) -> Table:
    lines = []
    for row in result.rows:
        found = (getattr(row, metric) for metric in METRICS)
        lines.append(
            [row.set, f"{row.contamination:g}", row.statistic]
            + [f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in found]
            + [f"{row.prevalence:.3f}", str(row.inliers), str(row.outliers)]
        )
    title = ["set", "contamination", "statistic", *METRICS, "prevalence", "inliers", "outliers"]
    return [title, *lines]


def _draw_lines(axes: Any, result: Evaluation, set: str, shares: list[float]) -> None:
    for index, label in enumerate(result.statistics):
        found = [result.row(set, label, share).auroc for share in shares]
        values = [one.value for one in found]
        axes.plot(shares, values, marker=marker(index), label=label, **line(index))
        low, high = [one.low for one in found], [one.high for one in found]
        draw_band(axes, shares, low, high, index)
    share_axis(axes, shares)
    axes.set_title(set)


def _draw_bars(axes: Any, result: Evaluation, sets: list[str], share: float) -> None:
    width = 0.8 / len(result.statistics)
    for index, label in enumerate(result.statistics):
        found = [result.row(set, label, share).auroc for set in sets]
        axes.bar(
            [place + (index + 0.5) * width - 0.4 for place in range(len(sets))],
            [one.value for one in found],
            width,
            # The percentile interval of a skewed metric may just miss the metric's value.
            yerr=np.maximum(0, [(one.value - one.low, one.high - one.value) for one in found]).T,
            capsize=2,
            color=line(index)["color"],
            label=label,
        )
    axes.set_xticks(range(len(sets)), sets)
    axes.set_xlabel(f"outliers (contamination {share:g})")
