"""Writes a model card, README.md, into every base under savedmodels/, from its manifest and the results.

    .venv/bin/python tools/release/cards.py [NAME …] [--folder savedmodels] [--results results/paper]

A figure gets an interval if the results have the same figure; results of another training run are never used.
"""

import argparse
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from tfbnood._core.files import atomic_path
from tfbnood._core.tables import as_markdown
from tfbnood.reproduce.run import read_studies

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {"realnvp": "RealNVP", "vae": "VAE", "pixelcnn": "PixelCNN++"}
NAMES = {
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "digits": "scikit-learn's handwritten digits",
}
# Besides the detector's own statistic: the paper's baseline, its method, and a simple statistic of pixels.
SHOWN = ("log_prob", "bn_delta", "pixel_knn")
GOOD = 0.9  # AUROC below which a set is named among the limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="bases (default: all)")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "savedmodels")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "results" / "paper")
    arguments = parser.parse_args()
    bases = {path.parent.name: path.parent for path in arguments.folder.glob("*/MANIFEST.json")}
    for name in arguments.names:
        if name not in bases:
            parser.error(f"NAME must be one of {', '.join(sorted(bases))}. Received: {name}")
    for name in arguments.names or sorted(bases):
        with atomic_path(bases[name] / "README.md") as path:
            path.write_text(make_card(bases[name], arguments.results))
        print(bases[name] / "README.md")


def make_card(base: pathlib.Path, results: pathlib.Path) -> str:
    """The card of a base in Markdown."""
    manifest = json.loads((base / "MANIFEST.json").read_text())
    about = json.loads((base / "detector" / "detector.json").read_text())
    name, training = manifest["name"], manifest["training"]
    height, width, channels = about["image_shape"]
    kind = KINDS.get(training["model"], training["model"])
    data = NAMES.get(training["data"], training["data"])
    colours = "colour" if channels == 3 else "grey"
    figures, limits = _figures(manifest, results), "\n".join(_limits(manifest, data))
    facts = "\n".join(f"- **{key}**: {fact}" for key, fact in _facts(manifest, base).items())
    return f"""# {name}

Finds images that do not look like {data}: {colours} images of {height}×{width} pixels. A {kind} and the statistic
`{manifest["statistic"]}`, calibrated on held-out images; no outliers were used in training.

## How it was made

{facts}

To reproduce it: `{manifest["command"]}`.

## How well it works

AUROC by share of outliers in the pool, with 95 % intervals where the results have them; 0.5 is chance. At 100 %
inliers and outliers are scored in separate pools, the paper's protocol; a stream is more like 5 %.
`{manifest["statistic"]}` is what `score` and `predict` use. `bn_delta` is the paper's Δ with mixed moments.
{_rotations(manifest)}
{as_markdown(figures)}

## Limits

{limits}

## Load, score, serve

```python
import tfbnood

detector = tfbnood.load("{name}")
result = detector.predict(images, fpr=0.01)  # uint8 [n, {height}, {width}, {channels}]; .score, .p_value, .is_ood
```

```sh
tfbnood score {name} FOLDER --out report.html
tfbnood serve savedmodels/{name}      # TF Serving's REST API
```
"""


def _facts(manifest: dict[str, Any], base: pathlib.Path) -> dict[str, str]:
    training = manifest["training"]
    bits = training["bits_per_dim"]
    machine, made_with = manifest["machine"], manifest["versions"]
    # As the manifest lists them; a package without the exported version has fewer.
    files = [base / name for name in manifest["sha256"]]
    megabytes = sum(path.stat().st_size for path in files if path.is_file()) / 1e6
    precision = training.get("precision", "float32")
    return {
        "data": f"{training['data']}, {training['train_images']:,} training images",
        "licence of the data": manifest["licence_of_the_data"],
        "licence of the detector": "Apache-2.0",
        "model": f"{training['model']}, preset `{training['preset']}`",
        "training": f"{training['steps']:,} steps of {training['batch_size']} images, learning rate "
        f"{training['learning_rate']:g}, seed {training['seed']}, {precision}; {training['minutes']:g} minutes on "
        f"a machine with {machine['cores']} cores ({machine['processor']})",
        "bits per dimension": f"{bits['bits_per_dim_evaluation_mode']:.3f} in evaluation mode, "
        f"{bits['bits_per_dim_training_mode']:.3f} in training mode; {bits['images']:,} images of the split "
        f"`{bits['split']}`, scored in float32",
        "calibration": f"{manifest['calibration_images']:,} held-out images",
        "size": f"{megabytes:.1f} MB" + (" with the export" if (base / "1").is_dir() else ""),
        "versions": ", ".join(f"{key} {value}" for key, value in made_with.items()),
    }


def _rotations(manifest: dict[str, Any]) -> str:
    if "rotation-bilinear" not in manifest["auroc"][manifest["statistic"]]:
        return ""
    return (
        "`rotation` takes nearest neighbours, as the paper most likely does; `rotation-bilinear` has the same "
        "angles.\n"
    )


def _figures(manifest: dict[str, Any], results: pathlib.Path) -> list[list[str]]:
    measured, intervals = manifest["auroc"], _intervals(manifest, results)
    columns = [one for one in (manifest["statistic"], *SHOWN) if one in measured]
    table = [["outliers", "share", *columns]]
    for outliers, shares in measured[columns[0]].items():
        for share in shares:
            cells = []
            for column in columns:
                value = measured[column].get(outliers, {}).get(share)
                interval = intervals.get((column, outliers, share, value), "")
                cells.append("" if value is None else f"{value:.3f}{interval}")
            table.append([outliers, f"{float(share):.0%}", *cells])
    return table


def _intervals(manifest: dict[str, Any], results: pathlib.Path) -> dict[tuple[Any, ...], str]:
    """By statistic, set, share and value to the manifest's four digits: the interval in the results."""
    path = results / "table2.json"
    study = read_studies(path).get(manifest["name"], {}) if path.is_file() else {}
    found: dict[tuple[Any, ...], str] = {}
    for stage in ("ensemble", "statistics", "deltas"):
        for row in study.get(stage, {}).get("rows", ()):
            area = row["auroc"]
            place = (row["statistic"], row["set"], f"{row['contamination']:g}")
            text = f" ({area['low']:.3f}–{area['high']:.3f})"
            found[(*place, round(area["value"], 4))] = text
    return found


def _limits(manifest: dict[str, Any], data: str) -> Iterator[str]:
    own = manifest["auroc"][manifest["statistic"]]
    weak = [
        f"{outliers} ({min(shares.values()):.2f})"
        for outliers, shares in own.items()
        if min(shares.values()) < GOOD
    ]
    if weak:
        yield f"- Finds only a part of: {', '.join(weak)}, by the lowest AUROC of the shares above."
    yield f"- It only knows {data}; other sizes, crops, resizing or compression are outliers to it."
    yield "- p-values hold for images drawn like the calibration images; batches of a single class are not."
    yield "- Sets that are not in the table were not measured. Do not use it where a missed outlier harms somebody."


if __name__ == "__main__":
    main()
