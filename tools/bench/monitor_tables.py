"""The tables of docs/guarantees.md, from what `tools/bench/monitor.py` measured.

.venv/bin/python tools/bench/monitor_tables.py results/monitor.json
"""

import json
import pathlib
import sys
from typing import Any

SETS = {
    "fashion_mnist_vae": ("garments", {"mnist": "digits of MNIST", "rotation": "turned garments"}),
    "cifar10_realnvp": ("CIFAR-10", {"svhn": "SVHN", "lsun": "LSUN bedrooms"}),
}
RULES = ("5 of 100", "online MMD on scores", "online MMD on 32 components")
SHARES = ("1", "0.25", "0.1", "0.05", "0.01")
KINDS = {
    "clean/mixed": "random order",
    "clean/class order, groups are classes": "class by class, `groups=` classes",
    "clean/class order, groups are clusters": "class by class, `groups=` clusters",
    "clean/class order": "class by class",
    "clean, thinned as measured/class order": "class by class, thinned as measured",
    "clean/bursts of 10": "every image ten times",
    "clean, thinned as measured/bursts of 10": "every image ten times, thinned as measured",
}
PROMISED = ("clean/mixed", "clean/class order, groups are classes")
USUAL = {"mixed": "random order", "class order": "class by class", "bursts of 10": "ten times"}


def false_alarms(parts: dict[str, Any]) -> list[str]:
    """Share of clean streams on which the monitor raises an alarm, by order of the images."""
    lines = [
        "| images | order | streams | alarms | promised | alarms at ten times the run length | promised |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for detector, (inliers, _) in SETS.items():
        for kind, words in KINDS.items():
            found = parts.get(f"{detector}/{kind}")
            if found is None:
                continue
            first, tenth = (found[f"evidence ≥ {limit}"] for limit in ("10000", "100000"))
            promises = [
                f"≤ {_percent(of['promised'])}" if kind in PROMISED else "none"
                for of in (first, tenth)
            ]
            lines.append(
                f"| {inliers} | {words} | {first['of']:,} | {_interval(first)} | {promises[0]} | "
                f"{_interval(tenth)} | {promises[1]} |"
            )
    return lines


def usual_false_alarms(parts: dict[str, Any]) -> list[str]:
    """The same of usual rules."""
    lines = [
        "| images | order | 5 of 100 | online MMD, scores | online MMD, pixels |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for detector, (inliers, _) in SETS.items():
        for kind, words in USUAL.items():
            found = parts.get(f"{detector}/clean, usual rules/{kind}")
            if found is not None:
                cells = " | ".join(_percent(found[rule]["share"]) for rule in RULES)
                lines.append(f"| {inliers} | {words} | {cells} |")
    return lines


def delays(parts: dict[str, Any]) -> list[str]:
    """Median number of images from the change to the alarm, by outliers, their share and rule."""
    lines = [
        "| among | outliers | share | monitor | 5 of 100 | online MMD, scores | online MMD, pixels |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for detector, (inliers, outliers) in SETS.items():
        for name, words in outliers.items():
            for share in SHARES:
                ours, usual = (
                    parts.get(f"{detector}/{kind}/{name} {share}")
                    for kind in ("delays", "delays, usual rules")
                )
                if ours is not None:
                    others = ["–"] * 3 if usual is None else [_delay(usual[rule]) for rule in RULES]
                    cells = " | ".join([_delay(ours), *others])
                    lines.append(f"| {inliers} | {words} | {100 * float(share):g} % | {cells} |")
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _interval(found: dict[str, Any]) -> str:
    return f"{_percent(found['share'])} ({100 * found['low']:.1f}–{100 * found['high']:.1f})"


def _delay(found: dict[str, Any]) -> str:
    if found["median"] is None:
        return f"{100 * found['found']:.0f} % found"
    return f"{found['median']:,}"


def tables(content: dict[str, Any]) -> list[str]:
    """All tables, one after the other."""
    parts = content["parts"]
    return ["\n".join(made(parts)) for made in (false_alarms, usual_false_alarms, delays)]


def renewed(page: str, made: list[str]) -> str:
    """A page whose tables, found by their first lines, are replaced."""
    for table in made:
        before, head, after = page.partition(table.splitlines()[0] + "\n")
        if not head:
            raise SystemExit(f"the page must have a table that starts with {table.splitlines()[0]}")
        page = before + table + after[after.index("\n\n") :]
    return page


if __name__ == "__main__":
    found = tables(json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8")))
    page = pathlib.Path(sys.argv[2])
    page.write_text(renewed(page.read_text("utf-8"), found), "utf-8")
