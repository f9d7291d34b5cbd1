"""How well a detector works: metrics by set, statistic and contamination, and likelihoods in both modes."""

import copy
import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from tfbnood.batching import map_batches
from tfbnood.conditional import frozen_log_prob
from tfbnood.detector import Detector
from tfbnood.errors import DataError, StatisticError, TfbnoodError
from tfbnood.files import atomic_path, write_json
from tfbnood.images import as_images
from tfbnood.metrics import METRICS, Estimate, estimates
from tfbnood.pools import mix
from tfbnood.provenance import machine, versions
from tfbnood.statistics import Statistic, get

__all__ = ["Bits", "Evaluation", "Row", "evaluate"]

Table = list[list[str]]

# Okabe & Ito's colours, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


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


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found; `print` it, `plot` it or `save` it.

    Attributes:
        rows: by set, contamination and statistic.
        bits_per_dim: inliers first, then every set; empty when there is no likelihood model.
        statistics: name, scope and settings by the label used in `rows`.
        n: images of a set, at most; None is all.
        seed: of every random choice.
        reference: where the images came from that statistics were fitted to.
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
        """What the numbers rest on, in one line."""
        size = "all images" if self.n is None else f"at most {self.n} images"
        text = f"{size} of a set; seed {self.seed}; reference: {self.reference}"
        text += "; intervals: 95 %, bootstrap over images, ± half the length"
        batch = [label for label, about in self.statistics.items() if about["scope"] == "batch"]
        if batch:
            text += (
                f"; {', '.join(batch)}: scores depend on the pool, which at contamination 1 is of one kind "
                "and below 1 is mixed"
            )
        return text

    def __str__(self) -> str:
        tables = [_aligned(_auroc_table(self))]
        if self.bits_per_dim:
            tables.append(_aligned(_bits_table(self)))
        return "\n\n".join([*tables, self.notes])

    def to_markdown(self) -> str:
        """The tables in Markdown, with average precision and false alarms as well."""
        tables = [_auroc_table(self), _bits_table(self), _full_table(self)]
        texts = [_markdown(table) for table in tables if len(table) > 1]
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
        """Draws AUROC: against contamination for every set, or as bars when there is one contamination only.

        Returns:
            A `matplotlib.figure.Figure`.

        Example:
            >>> result.plot().savefig("auroc.pdf")
        """
        try:
            from matplotlib import pyplot
        except ImportError:
            raise TfbnoodError("plots need matplotlib: pip install tfbnood[plots]") from None
        shares = sorted({row.contamination for row in self.rows})
        sets = list(dict.fromkeys(row.set for row in self.rows))
        panels = len(sets) if len(shares) > 1 else 1
        columns = min(panels, 4)
        figure, grid = pyplot.subplots(
            -(-panels // columns),
            columns,
            squeeze=False,
            sharey=True,
            layout="constrained",
            figsize=(
                3.2 * columns if panels > 1 else max(5, 1.2 * len(sets)),
                3 * -(-panels // columns) + 0.5,
            ),
        )
        pyplot.close(figure)  # A notebook shows what is returned; left open it would show twice.
        for index, axes in enumerate(grid.flat):
            if index >= panels:
                axes.remove()
                continue
            if len(shares) > 1:
                _draw_lines(axes, self, sets[index], shares)
            else:
                _draw_bars(axes, self, sets, shares[0])
            axes.axhline(0.5, color="0.5", linestyle=":", label="chance")
            axes.set_ylim(0, 1.03)
        for axes in grid[:, 0]:
            axes.set_ylabel("AUROC")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))
        return figure

    def save(self, path: str | os.PathLike) -> None:
        """Writes `.json`, `.md` or `.png` by the suffix, or all three into a folder when there is none."""
        path = pathlib.Path(path)
        if path.is_dir() or not path.suffix:
            figure = self.plot()  # before anything is written: matplotlib may be missing
            self.save(path / "evaluation.json")
            self.save(path / "evaluation.md")
            _write_figure(path / "evaluation.png", figure)
        elif path.suffix == ".json":
            write_json(path, self.to_dict())
        elif path.suffix == ".md":
            with atomic_path(path) as temporary:
                temporary.write_text(self.to_markdown())
        elif path.suffix == ".png":
            _write_figure(path, self.plot())
        else:
            raise DataError(
                f"path must end in .json, .md or .png, or be a folder. Received: {path}"
            )


def _auroc_table(result: Evaluation) -> Table:
    cells: dict[tuple[str, float], list[str]] = {}
    for row in result.rows:
        cells.setdefault((row.set, row.contamination), []).append(str(row.auroc))
    lines = [[name, f"{share:g}", *line] for (name, share), line in cells.items()]
    return [["AUROC", "contamination", *result.statistics], *lines]


def _bits_table(result: Evaluation) -> Table:
    lines = []
    for bits in result.bits_per_dim:
        values = f"{bits.evaluation:.3f}", f"{bits.training:.3f}", f"{bits.difference:+.3f}"
        lines.append([bits.set, str(bits.images), *values])
    return [["bits per dim", "images", "evaluation", "training", "difference"], *lines]


def _full_table(result: Evaluation) -> Table:
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


def _aligned(table: Table) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *others in table:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)


def _markdown(table: Table) -> str:
    rule = ["---"] + ["---:"] * (len(table[0]) - 1)
    lines = ([cell.replace("|", "\\|") for cell in line] for line in (table[0], rule, *table[1:]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _draw_lines(axes: Any, result: Evaluation, set: str, shares: list[float]) -> None:
    for index, label in enumerate(result.statistics):
        found = [result.row(set, label, share).auroc for share in shares]
        colour = _COLOURS[index % len(_COLOURS)]
        values = [one.value for one in found]
        axes.plot(shares, values, color=colour, marker="osD^vPX*h"[index % 9], label=label)
        axes.fill_between(
            shares,
            [one.low for one in found],
            [one.high for one in found],
            color=colour,
            alpha=0.2,
            linewidth=0,
        )
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{share:g}" for share in shares], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("share of outliers in the pool")
    axes.set_title(set)


def _draw_bars(axes: Any, result: Evaluation, sets: list[str], share: float) -> None:
    width = 0.8 / len(result.statistics)
    for index, label in enumerate(result.statistics):
        found = [result.row(set, label, share).auroc for set in sets]
        axes.bar(
            [place + (index + 0.5) * width - 0.4 for place in range(len(sets))],
            [one.value for one in found],
            width,
            # The percentile interval of a skewed metric may leave its own value outside by a hair.
            yerr=np.maximum(0, [(one.value - one.low, one.high - one.value) for one in found]).T,
            capsize=2,
            color=_COLOURS[index % len(_COLOURS)],
            label=label,
        )
    axes.set_xticks(range(len(sets)), sets)
    axes.set_xlabel(f"outliers (contamination {share:g})")


def _write_figure(path: pathlib.Path, figure: Any) -> None:
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)


def evaluate(
    detector_or_model: Any,
    inliers: Any,
    outliers: Mapping[str, Any],
    *,
    statistics: Iterable[str | Statistic] | str | Statistic | None = None,
    contamination: Iterable[float] | float = (1.0,),
    n: int | None = None,
    seed: int = 0,
    reference: Any = None,
    progress: bool = False,
) -> Evaluation:
    """Measures how well statistics tell outliers from inliers.

    At contamination 1, the paper's protocol, inliers are scored as one pool and outliers as another. Below 1 both
    are in one pool, `tfbnood.data.mix(inliers, outliers, contamination, seed=seed)`, as in a user's stream.

    Args:
        detector_or_model: a `Detector`, or a model with `log_prob(images, training=…)`.
        inliers: held-out in-distribution images, `[m, height, width, channels]` in 0–255.
        outliers: out-of-distribution images by name, `{"mnist": images}`.
        statistics: names or `Statistic` objects. Defaults to the detector's own; for a bare model to "bn_delta" and
            "log_prob". An object that is fitted is used as it is, and so is the detector's own under its name.
        contamination: shares of outliers, in (0, 1].
        n: images of a set, at most; chosen at random. Defaults to all.
        seed: of every random choice.
        reference: in-distribution images to fit statistics to. Defaults to the detector's; where there are none, a
            random half of the inliers is used, and left out of the test.
        progress: show bars on a terminal.

    Raises:
        StatisticError: a statistic does not go with the model. None is dropped silently.

    Example:
        >>> result = tfbnood.evaluate(detector, x.test, {"mnist": digits}, contamination=(1.0, 0.2))
        >>> result.auroc("mnist", "bn_delta", contamination=0.2)
    """
    detector = detector_or_model if isinstance(detector_or_model, Detector) else None
    model = detector_or_model if detector is None else detector.model
    shape = getattr(detector_or_model, "image_shape", None)
    inliers = as_images(inliers, shape, name="inliers")
    sets = checked_outliers(outliers, inliers.shape[1:])
    shares = _checked_shares(contamination)
    if n is not None:
        check_integer("n", n, least=1)
    check_integer("seed", seed, least=0)
    chosen = _chosen(detector, statistics)
    source = "none needed, the statistics were fitted before"
    if not all(map(_is_fitted, chosen)):
        if reference is not None:
            source = "the reference argument"
        elif detector is not None and detector.reference is not None:
            reference, source = detector.reference, "the detector's"
        else:
            reference, inliers = halves(inliers, seed)
            source = "a random half of the inliers, left out of the test"
        source += f" ({len(reference)} images)"
    elif reference is not None:
        raise DataError(
            "reference must be left out when every statistic is fitted already: it would not be used. "
            f"Received: fitted {', '.join(statistic.name for statistic in chosen)}"
        )
    inliers = take(inliers, n, seed)
    sets = {name: take(images, n, seed) for name, images in sets.items()}
    # Drawn before anything is fitted or scored: too few images for a share should be said at once.
    pools = {
        (name, share): _pool_rows(len(inliers), len(images), share, seed)
        for name, images in sets.items()
        for share in shares
    }
    # A copy: the caller's object stays unfitted.
    chosen = [one if _is_fitted(one) else copy.copy(one).fit(model, reference) for one in chosen]
    labelled = dict(zip(_labels(chosen), chosen, strict=True))
    scores = {
        label: _scores(statistic, inliers, sets, pools, progress)
        for label, statistic in labelled.items()
    }
    rows = []
    for (name, share), drawn in pools.items():
        is_ood = drawn >= len(inliers)
        count = int(is_ood.sum())
        for label in labelled:
            found = estimates(is_ood, scores[label][name, share], seed=seed)
            rows.append(Row(name, share, label, len(is_ood) - count, count, **found))
    return Evaluation(
        rows=tuple(rows),
        bits_per_dim=tuple(_bits(model, {"inliers": inliers, **sets}, seed, progress)),
        statistics={
            label: {"name": one.name, "scope": one.scope, "config": one.get_config()}
            for label, one in labelled.items()
        },
        n=n,
        seed=seed,
        reference=source,
        provenance={
            "model": type(model).__name__,
            "image_shape": inliers.shape[1:],
            "versions": versions(),
            "machine": machine(),
        },
    )


def checked_outliers(outliers: Any, image_shape: Any) -> dict[str, np.ndarray]:
    """Checks a dict of image sets."""
    if not isinstance(outliers, Mapping) or not outliers:
        raise DataError(
            'outliers must be a dict of images by name, such as {"mnist": images}, with at least one. '
            f"Received: {'an empty dict' if isinstance(outliers, Mapping) else type(outliers).__name__}"
        )
    for name in outliers:
        if not isinstance(name, str) or name in ("", "inliers"):
            raise DataError(
                f'names in outliers must be text, and not "inliers". Received: {name!r}'
            )
    return {
        name: as_images(images, image_shape, name=f"outliers[{name!r}]")
        for name, images in outliers.items()
    }


def check_integer(name: str, value: Any, *, least: int) -> None:
    """Checks a count or a seed."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= int(value) < 2**32:
        raise DataError(
            f"{name} must be an integer of at least {least}. Received: {name}={value!r}"
        )


def take(images: np.ndarray, n: int | None, seed: int) -> np.ndarray:
    """At most n random images, in their order."""
    if n is None or n >= len(images):
        return images
    return images[np.sort(np.random.RandomState(seed).permutation(len(images))[:n])]


def halves(images: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two random halves, each in its order."""
    order = np.random.RandomState(seed).permutation(len(images))
    middle = len(images) // 2
    return images[np.sort(order[:middle])], images[np.sort(order[middle:])]


def _checked_shares(contamination: Any) -> tuple[float, ...]:
    shares = tuple(contamination) if isinstance(contamination, Iterable) else (contamination,)
    if not shares:
        raise DataError("contamination must hold at least one share. Received: none")
    for share in shares:
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < float(share) <= 1:
            raise DataError(f"contamination must lie in (0, 1]. Received: {share!r}")
    return tuple(dict.fromkeys(map(float, shares)))


def _chosen(detector: Detector | None, statistics: Any) -> list[Statistic]:
    if statistics is None:
        statistics = ("bn_delta", "log_prob") if detector is None else (detector.statistic,)
    if isinstance(statistics, str | Statistic):
        statistics = (statistics,)
    own = {} if detector is None else {detector.statistic.name: detector.statistic}
    chosen = [get(own.get(one, one) if isinstance(one, str) else one) for one in statistics]
    if not chosen:
        raise StatisticError("statistics must hold at least one. Received: none")
    return chosen


def _is_fitted(statistic: Statistic) -> bool:
    return hasattr(statistic, "image_shape_")


def _labels(chosen: list[Statistic]) -> list[str]:
    """Names; where two have the same, with the settings that tell them apart."""
    labels = []
    for one in chosen:
        same = [other.get_config() for other in chosen if other.name == one.name]
        settings = [
            f"{key}={value}"
            for key, value in one.get_config().items()
            if any(other.get(key) != value for other in same)
        ]
        labels.append(f"{one.name}({', '.join(settings)})" if settings else one.name)
    if len(set(labels)) < len(labels):
        raise StatisticError(f"statistics must differ. Received: {', '.join(labels)}")
    return labels


def _pool_rows(inliers: int, outliers: int, share: float, seed: int) -> np.ndarray:
    """Rows of inliers and outliers, one after the other, that a pool of this share holds.

    `mix` draws by position, so images that carry their row number in four bytes tell; the fifth pixel keeps them
    from looking like images in 0–1.
    """
    numbers = np.arange(inliers + outliers, dtype=np.uint32)
    if share == 1:
        return numbers
    tagged = np.pad(numbers[:, None].view(np.uint8), ((0, 0), (0, 1)), constant_values=255)
    tagged = tagged[:, None, :, None]
    drawn, _ = mix(tagged[:inliers], tagged[inliers:], share, seed=seed)
    return np.ascontiguousarray(drawn[:, 0, :4, 0]).view(np.uint32)[:, 0]


def _scores(
    statistic: Statistic,
    inliers: np.ndarray,
    sets: Mapping[str, np.ndarray],
    pools: Mapping[tuple[str, float], np.ndarray],
    progress: bool,
) -> dict[tuple[str, float], np.ndarray]:
    """Scores of every pool's images; of the two pools at share 1, inliers first."""
    alone = statistic.scope == "image"
    apart: dict[str, np.ndarray] = {}
    if alone or any(share == 1 for _, share in pools):
        own = statistic.score(inliers, progress=progress)
        for name, images in sets.items():
            apart[name] = np.concatenate([own, statistic.score(images, progress=progress)])
    scores = {}
    for (name, share), rows in pools.items():
        if alone or share == 1:  # Companions do not matter, or are known: nothing to score again.
            scores[name, share] = apart[name][rows]
        else:
            pool = np.concatenate([inliers, sets[name]])[rows]
            scores[name, share] = statistic.score(pool, progress=progress)
    return scores


def _bits(model: Any, sets: Mapping[str, np.ndarray], seed: int, progress: bool) -> Iterator[Bits]:
    if not callable(getattr(model, "log_prob", None)):
        return
    log_prob = frozen_log_prob(model)
    for name, images in sets.items():
        # Shuffled: in a file sorted by class, batches would be of one class rather than of the set's kind.
        images = images[np.random.RandomState(seed).permutation(len(images))]
        evaluation, training = (
            -map_batches(
                lambda batch, mode=mode: log_prob(batch, mode),
                images,
                description=f"bits per dim of {name}",
                progress=progress,
            ).mean(dtype=np.float64)
            / (math.prod(images.shape[1:]) * math.log(2))
            for mode in (False, True)
        )
        yield Bits(name, len(images), float(evaluation), float(training))
