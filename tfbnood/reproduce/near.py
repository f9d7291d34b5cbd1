"""`tfbnood reproduce near`: near outliers, detected with networks, beside the default and published figures."""

import functools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.stats import norm

from tfbnood._core.tables import Table
from tfbnood.metrics import auroc
from tfbnood.reproduce.near_cases import CASES, SETUPS, Case
from tfbnood.reproduce.near_published import PUBLISHED
from tfbnood.reproduce.page import Section
from tfbnood.reproduce.stages import Stages

__all__ = ["make_sections", "read_stages", "run_stages"]

Found = Mapping[tuple[str, str], list[dict[str, Any]]]

_TITLES = {
    "lsun": "LSUN bedrooms",
    "svhn": "SVHN",
    "tinyimagenet": "Tiny ImageNet",
    "tinyimagenet_other": "Tiny ImageNet, other kinds",
    "rotation": "rotated",
    "mnist": "MNIST",
    "kmnist": "KMNIST",
    "omniglot": "Omniglot",
    "flowers128": "flowers",
    "defects": "defects",
    "left out": "left out",
}
_CLASSES = {
    ("cifar10", (5, 6, 7, 8, 9)): "classes 5–9",
    ("cifar10", (1, 3, 5, 7, 9)): "odd classes",
    ("cifar10", (0, 1, 8, 9)): "vehicles",
    ("cifar10", (2, 3, 4, 5, 6, 7)): "animals",
    ("fashion_mnist", (5, 6, 7, 8, 9)): "classes 5–9",
    ("fashion_mnist", (1, 3, 5, 7, 9)): "odd classes",
    ("scenes128", (4, 5)): "sea, street",
    ("scenes128", (0, 1)): "buildings, forest",
    ("scenes128", (2, 3)): "glacier, mountain",
}


def run_stages(
    out: pathlib.Path, n: int, data_dir: str | None = None, only: str | None = None
) -> None:
    """Measures every case with every setup that has not been measured yet; `only` names one case."""
    # Imports TensorFlow, which is not needed to make tables of finished stages.
    from tfbnood.reproduce.measure_near import measure_near

    todo = [
        (case, name, seed)
        for name in SETUPS
        for case in CASES
        if name in case.setups and only in (None, case.name)
        for seed in case.seeds(name)
    ]
    stages = Stages(out, {"scale": "near", "n": n}, len(todo))
    for case, name, seed in todo:
        measure = functools.partial(measure_near, case, SETUPS[name], seed, n, data_dir)
        stages.run(_stage(case, name, seed), measure)


def read_stages(out: pathlib.Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Results by case and setup, one per seed."""
    import json

    found = {}
    for case in CASES:
        for name in case.setups:
            paths = [
                out / "stages" / f"{_stage(case, name, seed)}.json" for seed in case.seeds(name)
            ]
            results = [json.loads(path.read_text())["result"] for path in paths if path.is_file()]
            if results:
                found[case.name, name] = results
    return found


def make_sections(found: Found) -> list[Section]:
    """The tables of the finished stages."""
    small = [case for case in CASES if not case.photographs]
    text = (
        "EfficientNet-Lite0 was trained on ImageNet with labels, and Tiny ImageNet is a part of ImageNet: its rows are "
        "not unsupervised. The small classifier was trained here on labels; where classes are left out, on the others "
        "alone. All sets are at 28 or 32 pixels and are enlarged by the same filter (bicubic). AUROC with 95 % "
        "bootstrap intervals over images; of two seeds, with other reference images, the mean and the first interval."
    )
    return [
        Section(
            "Near outliers among small images",
            [text],
            [
                ("AUROC", _auroc_table(found, small)),
                (
                    "With the likelihood model's detector: AUROC of the mean of normal scores",
                    _joined_table(found),
                ),
                (
                    "Batches of 64 with a quarter of outliers, found at 5 % by `bn_shift`",
                    _batch_table(found, small),
                ),
            ],
        ),
        Section(
            "Published figures on CIFAR-10",
            [
                "Theirs, not measured here; their sets of the same name differ from ours, as the notes say."
            ],
            [("AUROC without labels", _published_table())],
        ),
        Section(
            "Photographs at 128 pixels",
            [
                "Scenes: 420 photographs of six kinds, or of four with two left out; 240 test images. Screws: 240 good "
                "ones as reference, 80 held back against 119 with defects, most of which cover a few pixels."
            ],
            [("AUROC", _auroc_table(found, [case for case in CASES if case.photographs]))],
        ),
        Section(
            "Cost",
            ["Seconds of both cores together; the training of the small classifier is apart."],
            [("CPU seconds to fit, and images per CPU second", _cost_table(found))],
        ),
    ]


def _auroc_table(found: Found, cases: list[Case]) -> Table:
    lines = [
        [
            "in-distribution",
            "outliers",
            "stands on",
            "ensemble",
            "features",
            "bn_moments",
            "bn_local",
        ]
    ]
    for case, name, results in _finished(found, cases):
        for one in dict.fromkeys(row["set"] for row in results[0]["rows"]):
            cells = {
                statistic: _cell(results, one, statistic)
                for statistic in ("ensemble", "features", "bn_moments", "bn_local")
            }
            lines.append([case.data, _outliers(case, one), SETUPS[name].title, *cells.values()])
    return lines


def _cell(results: list[dict[str, Any]], outliers: str, statistic: str) -> str:
    rows = [
        row
        for result in results
        for row in result["rows"]
        if (row["set"], row["statistic"]) == (outliers, statistic)
    ]
    if not rows:
        return ""
    low, high = rows[0]["interval"]
    return f"{np.mean([row['auroc'] for row in rows]):.3f} ({low:.3f}–{high:.3f})"


def _joined_table(found: Found) -> Table:
    """The mean of the normal scores of two detectors, by their ranks among calibration images."""
    lines = [["in-distribution", "outliers", "shipped", "network", "both"]]
    for case in CASES:
        pair = [found.get((case.name, name)) for name in ("shipped", "lite0_128")]
        if None in pair:
            continue
        shipped, network = (one[0]["scores"] for one in pair if one)
        for name in case.outliers:
            values = []
            for scores in (shipped, network):
                values.append(
                    {key: _normal(scores[key], scores["calibration"]) for key in ("inliers", name)}
                )
            values.append({key: values[0][key] + values[1][key] for key in ("inliers", name)})
            cells = [
                auroc(
                    np.repeat([False, True], [len(one["inliers"]), len(one[name])]),
                    np.concatenate([one["inliers"], one[name]]),
                )
                for one in values
            ]
            lines.append([case.data, _TITLES[name], *(f"{cell:.3f}" for cell in cells)])
    return lines


def _normal(scores: list[float], calibration: list[float]) -> np.ndarray:
    """Normal scores by rank; beyond the last calibration score also by distance, so that there are no ties."""
    null, values = np.sort(calibration), np.asarray(scores)
    ranks = (np.searchsorted(null, values, side="right") + 0.5) / (len(null) + 1)
    spread = max(float(null[-1] - np.median(null)), 1e-12)
    beyond = np.log1p(np.maximum(values - null[-1], 0) / spread)
    return norm.ppf(np.clip(ranks, 1e-6, 1 - 1e-6)) + beyond


def _batch_table(found: Found, cases: list[Case]) -> Table:
    lines = [["in-distribution", "stands on", "batches", "found"]]
    for case, name, results in _finished(found, cases):
        for kind, share in results[0]["batches"].items():
            title = kind if kind in ("fresh", "one class") else _outliers(case, kind)
            lines.append([case.data, SETUPS[name].title, title, f"{share:.1%}"])
    return lines


def _published_table() -> Table:
    lines = [["method", "set", "AUROC", "source", "note"]]
    lines += [[one.method, one.set, f"{one.auroc:.3f}", one.source, one.note] for one in PUBLISHED]
    return lines


def _cost_table(found: Found) -> Table:
    lines = [
        [
            "in-distribution",
            "stands on",
            "reference images",
            "training",
            "fit",
            "images per CPU second",
        ]
    ]
    for case, name, results in _finished(found, list(CASES)):
        first = results[0]
        if first["reference"]:
            cells = [str(first["reference"]), f"{first['train_cpu_seconds']:.0f}"]
            cells += [f"{first['fit_cpu_seconds']:.0f}", f"{first['images_per_cpu_second']:.0f}"]
            lines.append([case.name, SETUPS[name].title, *cells])
    return lines


def _finished(found: Found, cases: list[Case]) -> Iterator[tuple[Case, str, list[dict[str, Any]]]]:
    for case in cases:
        for name in case.setups:
            if (case.name, name) in found:
                yield case, name, found[case.name, name]


def _outliers(case: Case, name: str) -> str:
    return _CLASSES[case.data, case.left_out] if case.left_out else _TITLES[name]


def _stage(case: Case, setup: str, seed: int) -> str:
    return f"{case.name}_{setup}_{seed}"
