"""Writes the tables of docs/benchmarks.md and docs/calibration.md from the files under results/.

    .venv/bin/python tools/bench/tables.py

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; a test compares pages and files.
"""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

from tfbnood._core.files import atomic_path
from tfbnood._core.tables import Table, as_markdown
from tfbnood.reproduce.tables import title_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "calibration.md")
_PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.S)


def growth_scores(growth: dict[str, Any]) -> Table:
    """Milliseconds per image by number of images."""
    counts = [str(count) for count in growth["counts"]]
    head = ["detector", "of", *(f"{int(count):,}" for count in counts), "last to first"]
    return [
        head,
        *(
            [
                name,
                row["library"],
                *(_number(row["by_count"].get(count, {}).get("score_cpu_ms")) for count in counts),
                _times(row["score_cost_grows_by"]),
            ]
            for name, row in growth["methods"].items()
        ),
    ]


def growth_fits(growth: dict[str, Any]) -> Table:
    """Seconds of a fit and memory, of the fewest and of the most images."""
    table = [["detector", "images", "fit, CPU s", "peak, MB", "images", "fit, CPU s", "peak, MB"]]
    for name, row in growth["methods"].items():
        by_count = row["by_count"]
        cells = []
        for count in (min(by_count, key=int), max(by_count, key=int)):
            found = by_count[count]
            cells += [
                f"{int(count):,}",
                _number(found["fit_cpu_seconds"]),
                f"{found['peak_MB']:,.0f}",
            ]
        table.append([name, *cells])
    return table


def one_by_one(found: dict[str, Any]) -> Table:
    """Milliseconds per image of each way, for both scores."""
    titles = {
        "log_prob_of_realnvp": "RealNVP, `log_prob`",
        "features_of_network": "EfficientNet-Lite0, `features`",
    }
    head = ["way"]
    for title in titles.values():
        head += [f"{title}: CPU ms", "to `predict`"]
    table = [head]
    for way in found["scores"]["log_prob_of_realnvp"]:
        cells = []
        for score in titles:
            row = found["scores"][score].get(way)
            cells += [_number(row["cpu_ms"]), _times(row["cpu_to_predict"])] if row else ["–", "–"]
        table.append([way, *cells])
    return table


def scoring(found: dict[str, Any]) -> Table:
    """The detector in process and its export, one image and 64."""
    now = found["now"]
    return [
        ["images", "`predict`, ms", "exported, ms", "`predict` to exported"],
        *(
            [
                str(count),
                _number(1000 * now[f"predict_{count}"]),
                _number(1000 * now[f"exported_{count}"]),
                _times(found["ratios"][f"predict_to_exported_{count}"]),
            ]
            for count in (1, 64)
        ),
    ]


def one_pass(found: dict[str, Any]) -> Table:
    rates = found["images_a_second"]
    return [
        [f"{len(found['statistics'])} statistics", "images per second"],
        *([way, f"{rate:.0f}"] for way, rate in rates.items()),
        ["ratio", _times(found["ratio"])],
    ]


def training(found: dict[str, Any]) -> Table:
    names = {
        "pytorch_float32": "PyTorch, eager",
        "tfbnood_float32": "tfbnood",
        "tfbnood_mixed_bfloat16": "tfbnood, bfloat16",
    }
    cpu, seconds = found["cpu_seconds_per_step"], found["seconds_per_step"]
    first, base = found["seconds_to_the_first_step"], "pytorch_float32"
    table = [
        [
            "",
            "s per step",
            "CPU s per step",
            "PyTorch's time to it",
            "by CPU",
            "s to the first step",
            "ahead after, steps",
        ]
    ]
    for name, title in names.items():
        if name not in cpu:
            continue
        saved = seconds[base] - seconds[name]
        ahead = f"{(first[name] - first[base]) / saved:.0f}" if saved > 0 else "–"
        table.append(
            [
                title,
                _number(seconds[name]),
                _number(cpu[name]),
                _times(found["times_the_speed_of_pytorch"][name]),
                _times(cpu[base] / cpu[name]),
                f"{first[name]:.1f}",
                ahead,
            ]
        )
    return table


def precision(found: dict[str, Any]) -> Table:
    """Held-out bits after the same steps in both number formats."""
    head = ["model on", "steps", "float32", "bfloat16", "difference", "CPU time to float32's"]
    table = [head]
    for line in found["lines"].values():
        exact, fast = (line["bits_per_dim"][one] for one in ("float32", "mixed_bfloat16"))
        seconds = line["cpu_seconds"]
        cells = [f"{line['steps']:,}", f"{exact:.3f}", f"{fast:.3f}", f"{line['difference']:+.4f}"]
        cells.append(f"{seconds['mixed_bfloat16'] / seconds['float32']:.2f}×")
        table.append([title_of(f"{line['data']}_{line['model']}"), *cells])
    return table


def startup(found: dict[str, Any]) -> Table:
    base = found["rows"]["`import tensorflow`"]["cpu_seconds"]
    return [
        ["process", "CPU s", "to `import tensorflow`"],
        *(
            [name, f"{row['cpu_seconds']:.2f}", _times(row["cpu_seconds"] / base)]
            for name, row in found["rows"].items()
        ),
    ]


def serving(found: dict[str, Any]) -> Table:
    """The server beside the SavedModel that it has; scoring in process is another table's question."""
    return [
        ["way", "median, ms", "99 of 100 below, ms", "bytes of a request"],
        *(
            [
                way,
                _number(row["p50_ms"]),
                _number(row["p99_ms"]),
                f"{row['bytes']:,}" if row["bytes"] else "–",
            ]
            for way, row in found["ways"].items()
            if not way.startswith("in process")
        ),
    ]


def beam(found: dict[str, Any]) -> Table:
    ways, memory = found["throughput"]["ways"], found["memory"]
    table = [
        ["way", "images per second", "CPU ms per image", "largest difference of a score", "GB"]
    ]
    for way, row in ways.items():
        peaks = [
            f"{value:.2f}"
            for name, value in memory.get(way, {}).items()
            if name.startswith("GB_over")
        ]
        table.append(
            [
                way,
                f"{row['images_per_second']:.0f}",
                _number(row["cpu_ms"]),
                f"{row['largest_difference']:g}",
                " and ".join(peaks) or "–",
            ]
        )
    return table


def onnx(found: dict[str, Any]) -> Table:
    table = [["detector", "1 image, ms", "to SavedModel", "64 images, ms", "to SavedModel", "MB"]]
    for name, row in found["rows"].items():
        cells = []
        for count in (1, 64):
            cells += [
                _number(1000 * row[f"onnxruntime_{count}"]),
                _times(row[f"onnxruntime_to_tensorflow_{count}"]),
            ]
        table.append([name, *cells, f"{row['megabytes']:.1f}"])
    return table


def streams(found: dict[str, Any]) -> Table:
    counts = sorted({key for row in found["peak_MB"].values() for key in row if key.isdigit()})
    counts.sort(key=int)
    return [
        ["call", *(f"{int(count):,} images, MB" for count in counts)],
        *(
            [f"`{call}`", *(f"{row[count]:.0f}" if count in row else "–" for count in counts)]
            for call, row in found["peak_MB"].items()
        ),
    ]


def certified(found: dict[str, Any]) -> Table:
    """True rates of plain and certified thresholds, and how often they are above the promised one."""
    table = [
        [
            "calibration images, rate",
            "plain: mean rate",
            "broken",
            "certified: mean rate",
            "broken",
        ]
    ]
    detectors = list(found["detectors"].values())
    for case in (key for key in detectors[0] if key.startswith("fpr")):
        rate, images, *clusters = case.removeprefix("fpr ").split(", ")
        title = f"{int(images.removesuffix(' images')):,}, {float(rate):.0%}"
        cells = [title + "".join(f", in each of {one}" for one in clusters)]
        for kind in ("plain, all", "certified, all"):
            of_kind = [one[case][kind] for one in detectors]
            cells.append(_range([one["mean_rate"] for one in of_kind]))
            cells.append(_range([one["broken"]["share"] for one in of_kind]))
        table.append(cells)
    return table


def class_alarms(found: dict[str, Any]) -> Table:
    """Alarms on single images by class, with and without clusters."""
    table = [["detector", "clusters", "alarms", "by class", "outliers found at 5%"]]
    for name, of in found["detectors"].items():
        for clusters, row in of["images"].items():
            by_class = _range([row["lowest_class"], row["highest_class"]])
            outliers = _shares(row["found"])
            share = f"{row['test']['share']:.1%}"
            table.append([_detector(name), _clusters(clusters), share, by_class, outliers])
    return table


def class_batches(found: dict[str, Any]) -> Table:
    """Batches that higher criticism flags, by kind of batch, with and without clusters."""
    usual = ("clean", "one class")
    table = [["detector", "clusters", *usual, "a quarter of outliers"]]
    for name, of in found["detectors"].items():
        for clusters in of["images"]:
            flagged = {
                kind: tests[f"higher_criticism, {clusters}"]
                for kind, tests in of["batches"].items()
            }
            cells = [f"{flagged.pop(kind)['share']:.2f}" for kind in usual]
            table.append([_detector(name), _clusters(clusters), *cells, _shares(flagged)])
    return table


def _detector(name: str) -> str:
    study, _, basis = name.rpartition("_")
    data = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}[study]
    bases = {"vae": "VAE", "realnvp": "RealNVP", "efficientnet-lite0": "EfficientNet-Lite0"}
    return f"{data}, {bases[basis]}"


def _clusters(count: str) -> str:
    return "none" if count == "1" else count


def _shares(by_set: dict[str, Any]) -> str:
    return ", ".join(f"{name} {of['share']:.2f}" for name, of in by_set.items())


def _range(shares: list[float]) -> str:
    return f"{100 * min(shares):.1f}–{max(shares):.1%}"


# By name of the table: the result file, and what makes it.
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], Table]]] = {
    "growth_scores": ("bench_growth.json", growth_scores),
    "growth_fits": ("bench_growth.json", growth_fits),
    "one_by_one": ("bench_one_by_one.json", one_by_one),
    "scoring": ("bench_scoring.json", scoring),
    "one_pass": ("bench_one_pass.json", one_pass),
    "training": ("bench_training.json", training),
    "precision": ("bench_precision.json", precision),
    "startup": ("bench_startup.json", startup),
    "serving": ("bench_serving.json", serving),
    "beam": ("beam.json", beam),
    "onnx": ("onnx.json", onnx),
    "streams": ("streams.json", streams),
    "certified": ("certified.json", certified),
    "class_alarms": ("class_mix.json", class_alarms),
    "class_batches": ("class_mix.json", class_batches),
}


def renewed(page: str) -> str:
    """A page with the tables of the result files."""

    def fill(place: re.Match[str]) -> str:
        begin, name, end = place.groups()
        file, make = TABLES[name]
        found = json.loads((ROOT / "results" / file).read_text("utf-8"))
        return f"{begin}\n{as_markdown(make(found))}\n\n{end}"

    return _PLACE.sub(fill, page)


def _number(value: float | None) -> str:
    """Three significant digits at most; a dash where nothing was measured."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 1 else f"{value:.3g}"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.2f}×"


def main() -> None:
    for page in PAGES:
        text = renewed(page.read_text("utf-8"))
        with atomic_path(page) as temporary:
            temporary.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
