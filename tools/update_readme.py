"""Writes the result tables of README.md, of pages under docs/ and of tools/research/README.md from the result files.

    .venv/bin/python tools/update_readme.py

So no number in them is typed by hand; a test checks that they are up to date.
"""

import json
import pathlib
from typing import Any

from tfbnood._core.files import atomic_path
from tfbnood._core.tables import as_markdown
from tfbnood.reproduce import near, paper
from tfbnood.reproduce.beyond import (
    make_batches_table,
    make_deltas_table,
    make_statistics_table,
)
from tfbnood.reproduce.run import read_studies
from tfbnood.reproduce.tables import title_of

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
RESEARCH = ROOT / "tools" / "research"
BEGIN, END = "<!-- results: made by tools/update_readme.py -->", "<!-- end of results -->"
# What the README's table compares: a model on each data set, and statistics that others would use, in plain words.
FIRST = {"fashion_mnist_vae": "garments", "cifar10_realnvp": "CIFAR-10"}
BASELINES = {
    "log_prob": "likelihood",
    "complexity": "likelihood and PNG size",
    "pixel_pca": "pixels, PCA",
    "pixel_knn": "pixels, neighbours",
    "reconstruction": "reconstruction error",
}


def texts() -> dict[pathlib.Path, str]:
    """By file, the tables in Markdown."""
    beyond = read_studies(RESULTS / "paper" / "beyond.json")
    return {
        ROOT / "README.md": as_markdown(_first_table(beyond)),
        ROOT / "docs" / "statistics.md": "\n\n".join(
            [
                "**Single images and mixed streams**, AUROC:",
                *_auroc_tables(beyond),
                *_false_alarm_lines(),
                "**Δ with mixed moments instead of mixed samples** (r1 = .1, r2 = .9, one draw each where not said):",
                as_markdown(make_deltas_table(beyond)),
                *_batches_tables(beyond),
                "**Bits per dimension** in both modes:",
                _bits_table(beyond),
            ]
        ),
        ROOT / "docs" / "networks.md": "\n\n".join(
            [
                "**How large, how long** (`tfbnood reproduce near`; seconds of both cores together, so that two free "
                "cores take about half as long):",
                as_markdown(_networks_table()),
                "**Alarms at 5 % on in-distribution images that were changed** (`tools/bench/tolerate.py`; "
                "without `pretext`):",
                as_markdown(_tolerate_table("alarms")),
                "**AUROC of the same detectors**, and in brackets the share found at 5 %:",
                *(as_markdown(table) for table in _tolerate_costs()),
                "**Where**: 10×10 pieces of other images pasted into 200 images (`tools/research/where.py`; seconds "
                "per image on two busy cores; detectors as shipped until 0.2.0):",
                as_markdown(_where_table()),
            ]
        ),
        ROOT / "docs" / "method.md": "\n\n".join([*_rotations_tables(), *_waic_tables()]),
        ROOT / "docs" / "train.md": as_markdown(_trainings_table()),
        ROOT / "docs" / "reliability.md": "\n\n".join(
            [
                "**False alarms** among in-distribution test images, and the expected range:",
                as_markdown(_false_alarms_table()),
                "**Answers at other doors** against those of the detector in Python, on test images and rotated ones; "
                "the largest difference of scores by door:",
                as_markdown(_doors_table()),
            ]
        ),
        RESEARCH / "README.md": "\n\n".join(
            [
                "**Sets that no setting was chosen with** (`untouched_sets.py`), AUROC, outliers alone:",
                as_markdown(_members_table(_research("untouched_sets")["auroc"])),
                "**Classes that were held out** (`held_out_classes.py`), AUROC, outliers alone:",
                as_markdown(_members_table(_research("held_out_classes")["auroc"])),
                *_choices("bn_moments", _research("choose_moments")),
                *_choices("ensemble", _research("choose_ensemble")),
            ]
        ),
    }


def _first_table(beyond: dict[str, Any]) -> list[list[str]]:
    """The default detector and a frozen network against the best of the baselines, and the paper's test."""
    near_found = near.read_stages(RESULTS / "near")
    table = [
        [
            "expected, foreign",
            "default detector",
            "frozen ImageNet network",
            "best baseline",
            "the paper's test, pools of one kind",
            "the paper's test, 20 % foreign",
        ]
    ]
    for name, title in FIRST.items():
        study, (network, *_) = beyond[name], near_found[name.rpartition("_")[0], "lite0_128"]
        by_network = {
            row["set"]: row["auroc"] for row in network["rows"] if row["statistic"] == "ensemble"
        }
        # Sets that the network was measured on, too.
        for outliers in (one for one in study["settings"]["outliers"] if one in by_network):
            at = {
                (row["contamination"], row["statistic"]): row["auroc"]["value"]
                for stage in ("ensemble", "statistics")
                for row in study[stage]["rows"]
                if row["set"] == outliers
            }
            baseline = max(
                (one for one in BASELINES if (0.2, one) in at), key=lambda one: at[0.2, one]
            )
            alone = (at[0.2, "ensemble"], by_network[outliers], at[0.2, baseline])
            ours, networks, baselines = (
                f"**{one:.3f}**" if one == max(alone) else f"{one:.3f}" for one in alone
            )
            pools = [f"{at[share, 'bn_delta']:.3f}" for share in (1.0, 0.2)]
            baselines += f" ({BASELINES[baseline]})"
            table.append([f"{title}, {outliers}", ours, networks, baselines, *pools])
    return table


def _rotations_tables() -> list[str]:
    found = _research("rotations_cifar10_pixelcnn")
    table = [["moving moments", "set", "evaluation mode", "mixed batches", "difference"]]
    draws = found["result"]["moving"]["nearest"]["auroc_delta"]
    table[0] += [f"{count} draw" + "s" * (count != "1") for count in draws]
    for moments, sets in found["result"].items():
        for name, row in sets.items():
            still, mixed = row["bits_evaluation"], row["bits_mixed"]
            cells = [f"{value:.2f}" for value in (still, mixed, mixed - still)]
            cells += [f"{value:.2f}" for value in row.get("auroc_delta", {}).values()]
            cells += [""] * (len(table[0]) - 2 - len(cells))
            title = "test images" if name == "inliers" else f"rotated, {name}"
            table.append([{"moving": "of the training"}.get(moments, moments), title, *cells])
    return [
        "**PixelCNN++ on CIFAR-10 and rotations**, bits per dimension and AUROC of Δ by number of draws "
        f"(`tools/research/rotations.py`, {found['images_per_set']} images of each set, r = {found['ratio']}):",
        as_markdown(table),
        "**Moments of the batch in one layer alone**, the same model: what they add to the bits, and AUROC of this "
        "difference. Layers that add .05 to those of test images or more, the best one, and all together:",
        as_markdown(_layers_table(found["alone"])),
    ]


def _layers_table(lines: list[dict[str, Any]]) -> list[list[str]]:
    *layers, together = lines
    best = max(layers, key=lambda line: line["auroc_delta"]["nearest"])
    table = [["layer by order of calls", "size", "test images", "rotated, nearest", "AUROC"]]
    for place, line in (*enumerate(layers, 1), ("all", together)):
        added = line["bits_added"]
        if added["inliers"] >= 0.05 or line in (best, together):
            _, _, size = line["layer"].rpartition(", ")
            names = ["all", ""] if line is together else [f"{place} of {len(layers)}", size]
            cells = [f"{added[name]:+.3f}" for name in ("inliers", "nearest")]
            table.append([*names, *cells, f"{line['auroc_delta']['nearest']:.3f}"])
    return table


def _waic_tables() -> list[str]:
    studies = _research("waic")["studies"]
    table = [["model", "outliers", "−E[log p]", "Var[log p]", "WAIC"]]
    table[0] += ["WAIC in training mode", "WAIC, the paper's"]
    for name, found in studies.items():
        for images, row in found["evaluation"].items():
            if "auroc_waic" not in row:  # the inliers
                continue
            values = [row[f"auroc_{term}"] for term in ("mean", "variance", "waic")]
            values.append(found["training"][images]["auroc_waic"])
            theirs = paper.TABLE2[name].get(images, {}).get("waic")
            cells = [f"{value:.2f}" for value in values]
            table.append([title_of(name), images, *cells, f"{theirs[0]:.2f}" if theirs else ""])
    (count,) = {found["images_per_set"] for found in studies.values()}
    return [
        f"**The terms of WAIC**, AUROC (`tools/research/waic.py`, {count} images of each set):",
        as_markdown(table),
    ]


def _trainings_table() -> list[list[str]]:
    """How long the shipped models were trained, and how far they came."""
    table = [["model on", "preset", "steps", "minutes of one core", "bits per dimension"]]
    for path in sorted((ROOT / "savedmodels").glob("*/MANIFEST.json")):
        training = json.loads(path.read_text())["training"]
        # The tiny one of the demo was trained on both cores.
        if training.get("precision") == "mixed_bfloat16":
            bits = training["bits_per_dim"]["bits_per_dim_evaluation_mode"]
            cells = [f"`{training['preset']}`", f"{training['steps']:,}"]
            cells += [f"{training['minutes']:.0f}", f"{bits:.2f}"]
            table.append([title_of(path.parent.name), *cells])
    return table


def _networks_table() -> list[list[str]]:
    """The last table of near: what fitting and scoring cost."""
    return near.make_sections(near.read_stages(RESULTS / "near"))[-1].tables[0][1]


def _tolerate() -> dict[str, Any]:
    return json.loads((RESULTS / "tolerate.json").read_text())["found"]


def _tolerate_table(key: str) -> list[list[str]]:
    found = _tolerate()
    changes = list(next(iter(found.values()))[key])
    lines = [["detector", *changes]]
    return lines + [
        [name, *(f"{one[key][of]:.1%}" for of in changes)] for name, one in found.items()
    ]


def _tolerate_costs() -> list[list[list[str]]]:
    """One table for each data set, which have other outliers."""
    found = _tolerate()
    tables = []
    for data in dict.fromkeys(name.partition(",")[0] for name in found):
        rows = {name: one for name, one in found.items() if name.startswith(f"{data},")}
        sets = list(next(iter(rows.values()))["auroc"])
        lines = [["detector", *sets]]
        for name, one in rows.items():
            cells = [f"{one['auroc'][of]:.3f} ({one['found'][of]:.0%})" for of in sets]
            lines.append([name, *cells])
        tables.append(lines)
    return tables


def _where_table() -> list[list[str]]:
    lines = [["detector", "pieces of", "peak inside", "pixel AUROC", "chance", "seconds"]]
    for name, found in _research("where")["found"].items():
        for pieces, one in found.items():
            if isinstance(one, dict):  # The last entry is a cost alone.
                shares = [f"{one['peak_inside']:.1%}", f"{one['pixel_auroc']:.3f}"]
                rest = [f"{one['chance']:.1%}", f"{one['seconds_per_image']:.2f}"]
                lines.append([name, pieces.removeprefix("pieces of "), *shares, *rest])
    return lines


def _reliability() -> dict[str, Any]:
    return json.loads((RESULTS / "reliability.json").read_text())["found"]


def _false_alarms_table() -> list[list[str]]:
    found = _reliability()
    rates = list(next(iter(found.values()))["false_alarms"]["by_rate"])
    lines = [["detector", "calibration images", *(f"at {float(rate):.0%}" for rate in rates)]]
    for name, one in found.items():
        count = one["false_alarms"]["images"]
        cells = []
        for alarms in one["false_alarms"]["by_rate"].values():
            low, high = alarms["expected_95"]
            share = f"{alarms['alarms'] / count:.1%}"
            cells.append(f"{share} ({low / count:.1%}–{high / count:.1%})")
        lines.append([f"`{name}`", f"{one['calibration_images']:,}", *cells])
    return lines


def _doors_table() -> list[list[str]]:
    found = _reliability()
    doors = list(next(iter(found.values()))["doors"]["by_door"])
    lines = [["detector", *doors, "other p-values", "other alarms"]]
    for name, one in found.items():
        by_door = one["doors"]["by_door"]
        cells = [f"{by_door[door]['largest_score_difference']:.1g}" for door in doors]
        asked = len(doors) * one["doors"]["images"]
        for key in ("other_p_values", "other_decisions"):
            cells.append(f"{sum(by_door[door][key] for door in doors)} of {asked}")
        lines.append([f"`{name}`", *cells])
    return lines


def _research(name: str) -> dict[str, Any]:
    return json.loads((RESEARCH / "results" / f"{name}.json").read_text())


def _auroc_tables(beyond: dict[str, Any]) -> list[str]:
    parts = []
    for name, study in beyond.items():
        if "statistics" in study:
            parts += [f"**{title_of(name)}**", as_markdown(make_statistics_table(study))]
    return parts


def _batches_tables(beyond: dict[str, Any]) -> list[str]:
    parts = []
    for name, study in beyond.items():
        if "batches" in study:
            parts += [
                f"**Whole batches**, {title_of(name)}:",
                as_markdown(make_batches_table(study)),
            ]
    return parts


def _bits_table(beyond: dict[str, Any]) -> str:
    lines = ["| model | set | evaluation mode | training mode | difference |", "|" + " --- |" * 5]
    for name, study in beyond.items():
        for bits in study.get("deltas", study.get("statistics"))["bits_per_dim"]:
            numbers = (bits["evaluation"], bits["training"], bits["difference"])
            cells = [name, bits["set"], *(f"{number:.2f}" for number in numbers)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _members_table(found: dict[str, Any]) -> list[list[str]]:
    table = [["detector", "outliers", "`ensemble`", "its best member alone", "which"]]
    for name, sets in found.items():
        for one, by_statistic in sets.items():
            alone = {label: value for label, value in by_statistic.items() if label != "ensemble"}
            best = max(alone, key=alone.__getitem__)
            cells = [f"{by_statistic['ensemble']:.3f}", f"{alone[best]:.3f}", best]
            table.append([name, one, *cells])
    return table


def _choices(statistic: str, result: dict[str, Any]) -> list[str]:
    """Choices, the best first; one column per detector."""
    means, below = result["mean_auroc"], result.get("below_the_best_member", {})
    sets = list(next(iter(means.values())))
    table = [["choice", *sets, *(["below the best member", "at worst"] if below else [])]]
    for label, of in sorted(
        means.items(),
        key=lambda item: below[item[0]]["mean"] if below else -sum(item[1].values()),
    ):
        cells = [f"{of[one]:.3f}" for one in sets]
        table.append([label, *cells, *(f"{value:.3f}" for value in below.get(label, {}).values())])
    return [f"**Choice of `{statistic}`**, mean AUROC on pseudo-outliers:", as_markdown(table)]


def _false_alarm_lines() -> list[str]:
    return [
        _false_alarm_line(json.loads(path.read_text()))
        for path in sorted(RESULTS.glob("*/false_alarms*.json"))
    ]


def _false_alarm_line(result: dict[str, Any]) -> str:
    fresh, skewed = result["fresh"], result["one_class_only"]
    return (
        f"False alarms of `{result['detector']}` at a nominal {result['nominal_rate']:.0%}, in requests of "
        f"{result['images_a_request']}: {fresh['images']:.1%} of {result['fresh_images']} fresh test images and "
        f"{fresh['whole_batches']:.1%} of {fresh['requests']} whole batches; of batches with one class only "
        f"{skewed['images']:.1%} of the images and {skewed['whole_batches']:.1%} of {skewed['requests']} batches."
    )


def main() -> None:
    for path, text in texts().items():
        before, rest = path.read_text().split(BEGIN)
        _, after = rest.split(END)
        with atomic_path(path) as temporary:
            temporary.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
