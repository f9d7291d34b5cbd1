"""The paper's tables, ours beside the paper's, from the results of stages."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfbnood._core.tables import Table
from tfbnood.reproduce import paper
from tfbnood.reproduce.page import Section

__all__ = [
    "TITLES",
    "Studies",
    "make_table1",
    "make_table2",
    "make_table3",
    "make_table4",
    "make_training_table",
    "title_of",
]

Studies = Mapping[str, Mapping[str, Any]]

TITLES = {
    "fashion_mnist_realnvp": "RealNVP on Fashion-MNIST",
    "fashion_mnist_vae": "VAE on Fashion-MNIST",
    "fashion_mnist_pixelcnn": "PixelCNN++ on Fashion-MNIST",
    "cifar10_realnvp": "RealNVP on CIFAR-10",
    "cifar10_pixelcnn": "PixelCNN++ on CIFAR-10",
}


def title_of(study: str) -> str:
    """A study's name for readers."""
    return TITLES.get(study, study)


def make_training_table(studies: Studies) -> Table:
    """What was trained; the text around it states where sizes and data differ from the paper's."""
    table = [
        ["model", "preset", "parameters", "steps", "precision", "training images", "data from"]
    ]
    for name, study in studies.items():
        if "training" in study:
            settings, found = study["settings"], study["training"]
            size = f"{found['parameters'] / 1e6:.2f} M"
            count = f"{found['train_images']:,}"
            line = [title_of(name), settings["preset"], size, f"{settings['steps']:,}"]
            line += [settings.get("precision", "float32"), count]
            table.append([*line, found["source"]])
    return table


def make_table1(studies: Studies) -> Section:
    """Bits per dimension in both modes."""
    table = [["model", "evaluated on", "evaluation", "training", "Δ", "paper's", "paper's Δ"]]
    for name, bits in _with(studies, "bits"):
        theirs = paper.TABLE1.get(name, {})
        for index, (images, values) in enumerate(bits["evaluation"].items()):
            evaluation, training = np.mean(values), np.mean(bits["training"][images])
            printed = theirs.get(images)
            cells = [f"{evaluation:.2f}", f"{training:.2f}", f"{training - evaluation:+.2f}"]
            cells += _printed_modes(printed)
            table.append(["" if index else title_of(name), images, *cells])
    text = (
        "Mean bits per dimension; training mode scores batches of 64 images of one set with the moments of the batch.",
        paper.SLIPS[0],
    )
    return Section("Table 1: likelihoods in both modes", text, [("Bits per dimension", table)])


def make_table2(studies: Studies) -> Section:
    """AUROC of the paper's statistics with the paper's values, and of all ours by contamination."""
    methods = {"log_prob": "log p", "t_perm": "T_perm", "waic": "WAIC", "bn_delta": "Δ"}
    heads = [f"{label} ({whose})" for label in methods.values() for whose in ("ours", "paper's")]
    table = [["model", "outliers", *heads]]
    tables: list[tuple[str, Table]] = [("AUROC / average precision, outliers alone", table)]
    for name, found in _with(studies, "statistics"):
        stages = ("ensemble", "statistics", "deltas", "waic")
        sources = [studies[name][key] for key in stages if studies[name].get(key)]
        theirs = paper.TABLE2.get(name, {})
        sets = list(dict.fromkeys(row["set"] for row in found["rows"]))
        for index, images in enumerate(sets):
            cells = []
            for method in methods:
                rows = [row for row in _rows(sources, images, 1.0) if _is_the_papers(row, method)]
                cells += [_pair(rows), _printed(theirs.get(images, {}).get(method))]
            table.append(["" if index else title_of(name), images, *cells])
        labels = list(dict.fromkeys(row["statistic"] for row in _all_rows(sources)))
        ours = [["outliers", "share", *labels]]
        for share in dict.fromkeys(row["contamination"] for row in found["rows"]):
            for images in sets:
                by_label = {row["statistic"]: row for row in _rows(sources, images, share)}
                values = [
                    by_label[one]["auroc"]["value"] if one in by_label else None for one in labels
                ]
                cells = ["" if value is None else f"{value:.3f}" for value in values]
                ours.append([images, f"{share:.0%}", *cells])
        tables.append(
            (f"AUROC, {title_of(name)}, all statistics by share of outliers in the pool", ours)
        )
    text = (
        "At 100 %, inliers and outliers are scored in separate pools, as in the paper; below that, in one pool. Δ "
        "(ours) mixes samples, as the paper does; bn_delta(moments) mixes moments, which is cheaper.",
        *_describe_waic(studies),
        paper.SLIPS[2],
    )
    return Section("Table 2: which images are out-of-distribution", text, tables)


def make_table3(studies: Studies) -> Section:
    """AUROC of |S_0 − S_r2|."""
    shown = (0.15, 0.3, 0.5, 0.9)
    heads = [f"r2 = {share:g} ({whose})" for share in shown for whose in ("ours", "paper's")]
    table = [["model", "outliers", *heads]]
    for name, found in _with(studies, "shares"):
        theirs = paper.TABLE3.get(name, {})
        for index, (images, metrics) in enumerate(found["metrics"].items()):
            cells = []
            for place, share in enumerate(shown):
                cells.append(f"{metrics['auroc'][found['shares'].index(share)]:.3f}")
                cells.append(f"{theirs[images][place]:.2f}" if images in theirs else "")
            table.append(["" if index else title_of(name), images, *cells])
    draws = sorted({found["draws"] for _, found in _with(studies, "shares")})
    text = (
        f"r1 → 0 is evaluation mode. Draws of random batches: {', '.join(map(str, draws))}. With one, the random "
        "reference images matter more than the test images where r2 is small, and values there are too low.",
        paper.SLIPS[1],
    )
    return Section("Table 3: how many test images a batch needs", text, [("AUROC", table)])


def make_table4(studies: Studies) -> Section:
    """Samples of a model of another set under a model, in both modes."""
    table = [
        [
            "model",
            "samples of",
            "temperature",
            "evaluation",
            "training",
            "Δ",
            "paper's",
            "paper's Δ",
        ]
    ]
    for name, found in _with(studies, "fooled"):
        for index, (temperature, (evaluation, training)) in enumerate(found["means"].items()):
            printed = paper.TABLE4.get(float(temperature)) if name == "cifar10_realnvp" else None
            cells = [f"{evaluation:.2f}", f"{training:.2f}", f"{training - evaluation:+.2f}"]
            cells += _printed_modes(printed)
            source = f"the same model trained on {found['data']}"
            table.append(["" if index else title_of(name), source, temperature, *cells])
    text = (
        "Generated images of another data set, scored in both modes. Which temperature makes them as likely as real "
        "images depends on the generator; those of Figures 4 and 5 are the paper's.",
    )
    return Section("Table 4: generated samples", text, [("Bits per dimension", table)])


def _describe_waic(studies: Studies) -> Iterator[str]:
    steps = {
        title_of(name): study["settings"].get("waic_steps")
        for name, study in studies.items()
        if study.get("waic") and study.get("settings", {}).get("waic_steps")
    }
    if steps:
        lengths = "; ".join(f"{name}: {count:,} steps" for name, count in steps.items())
        yield f"WAIC uses separate models, all trained equally long, and the unbiased variance. {lengths}."


def _with(studies: Studies, stage: str) -> Iterator[tuple[str, Any]]:
    for name, study in studies.items():
        if study.get(stage):
            yield name, study[stage]


def _all_rows(sources: list[Any]) -> list[Mapping[str, Any]]:
    """Rows of several evaluations, with labels that state how Δ was mixed."""
    rows: list[Mapping[str, Any]] = []
    for source in sources:
        for row in source["rows"]:
            about = source["statistics"][row["statistic"]]
            label = about["name"]
            if label == "bn_delta":
                mixing, r1 = about["config"]["mixing"], about["config"]["r1"]
                label += f"({mixing}{'' if r1 else ', r1 = 0'})"
            rows.append({**row, "statistic": label})
    return rows


def _rows(sources: list[Any], images: str, share: float) -> list[Mapping[str, Any]]:
    return [
        row for row in _all_rows(sources) if row["set"] == images and row["contamination"] == share
    ]


def _is_the_papers(row: Mapping[str, Any], method: str) -> bool:
    return row["statistic"] == ("bn_delta(samples)" if method == "bn_delta" else method)


def _pair(rows: list[Mapping[str, Any]]) -> str:
    if not rows:
        return "not measured"
    return f"{rows[0]['auroc']['value']:.3f} / {rows[0]['average_precision']['value']:.3f}"


def _printed_modes(values: tuple[float, float] | None) -> list[str]:
    if values is None:
        return ["", ""]
    return [f"{values[0]:.2f} → {values[1]:.2f}", f"{values[1] - values[0]:+.2f}"]


def _printed(values: tuple[float, float] | None) -> str:
    return "" if values is None else f"{values[0]:.2f} / {values[1]:.2f}"
