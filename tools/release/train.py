"""Makes the detectors under savedmodels/: trains, calibrates, measures, exports, and writes the manifest.

    tools/release/train [NAME …] [--runs runs] [--results results/paper]

Every step can resume: training runs under --runs, measurements as stages of `tfbnood reproduce` under --results. An
existing base is replaced. If it has the same training and --runs has none, its model is reused: it is only calibrated,
measured and exported again.
"""

import argparse
import json
import pathlib
import shutil
from typing import Any

from cards import make_card

from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data import Dataset, load
from tfbnood.data.pools import outlier_set
from tfbnood.detector import Detector
from tfbnood.errors import TfbnoodError
from tfbnood.evaluation.run import evaluate
from tfbnood.reproduce import reuse
from tfbnood.reproduce.run import read_studies, reproduce
from tfbnood.reproduce.studies import CONTAMINATIONS, SCALES
from tfbnood.statistics.registry import get
from tfbnood.zoo import file_hashes, manifest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES = 12_000_000
# The preset and the steps are those of `tfbnood reproduce --scale cpu`, which measures the same models.
STUDIES = {study.name: study for study in SCALES["cpu"]}
DEMO = {"data": "digits", "model": "realnvp", "preset": "tiny", "steps": 500}
DEMO_OUTLIERS = ("rotation", "inverted", "photos")
LICENCES = {
    "fashion_mnist": "MIT (Zalando SE); no image is inside",
    "cifar10": "no licence stated by its authors (Krizhevsky 2009); no image is inside",
    "digits": "CC BY 4.0 (UCI Optical Recognition of Handwritten Digits); no image is inside",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*STUDIES, "digits_realnvp"]
    parser.add_argument("names", nargs="*", default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "results" / "paper")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "savedmodels")
    parser.add_argument("--data-dir")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in names:
            raise SystemExit(f"NAME must be one of {', '.join(names)}. Received: {name}")
        make(name, arguments)


def make(name: str, arguments: argparse.Namespace) -> None:
    """Trains if needed, and writes the base."""
    settings = DEMO
    if name in STUDIES:
        study = STUDIES[name]
        keys = ("data", "model", "preset", "steps", "precision")
        settings = {key: getattr(study, key) for key in keys}
    dataset = load(settings["data"], data_dir=arguments.data_dir)
    model, training = load_or_train(name, settings, dataset, arguments.runs)
    statistic = reuse.prepare_ensemble(dataset.train, arguments.runs)
    detector = Detector(model, statistic, reference=dataset.train, progress=True)
    detector.about = {"runs": [training]}
    detector.calibrate(dataset.calibration, progress=True)

    # Beside the old base, which stays until the new one is complete; its name goes into the warm-up request.
    partial = arguments.out / f".partial-{name}"
    base = partial / name
    shutil.rmtree(partial, ignore_errors=True)
    detector.save(base / "detector")
    detector.export(base, held_out=dataset.calibration, progress=True)
    write_json(
        base / "MANIFEST.json",
        {
            "name": name,
            "statistic": detector.statistic.name,
            "training": training,
            "calibration_images": len(dataset.calibration),
            "auroc": measure(name, detector, dataset, arguments),
            "licence_of_the_data": LICENCES[settings["data"]],
            "versions": versions(),
            "machine": machine(),
            "command": f"tools/release/train {name}",
            "sha256": file_hashes(base),
        },
    )
    size = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise TfbnoodError(f"{base} must be at most {MOST_BYTES} bytes. Received: {size}")
    shutil.rmtree(arguments.out / name, ignore_errors=True)
    base.rename(arguments.out / name)
    partial.rmdir()
    card = make_card(arguments.out / name, arguments.results)
    (arguments.out / name / "README.md").write_text(card)
    print(f"{arguments.out / name}: {size / 1e6:.1f} MB")


def load_or_train(
    name: str, settings: dict[str, Any], dataset: Dataset, runs: pathlib.Path
) -> tuple[Any, dict[str, Any]]:
    """The model and its manifest's description of the training.

    It is the one in the folder of runs, else the shipped one, if either was trained in this way, else a new one.
    """
    options = {key: value for key, value in settings.items() if key != "data"}
    model = reuse.load_or_train(dataset, runs / name, **options)
    if not (runs / name / "model.keras").is_file():
        return model, manifest(name)["training"]
    run = json.loads((runs / name / "run.json").read_text())
    keys = {**settings, "seed": 0, "batch_size": 0, "learning_rate": 0, "jit": 0, "precision": 0}
    record = {key: run[key] for key in keys}
    record |= {"train_images": run["train_images"], "train_sha256": run["train_sha256"]}
    record |= {"minutes": round(run["seconds"] / 60, 1), "bits_per_dim": run["result"]}
    return model, record


def measure(name: str, detector: Detector, dataset: Dataset, arguments: argparse.Namespace) -> dict:
    """AUROC by statistic, set and share of outliers; for studies those of `tfbnood reproduce table2`."""
    if name in STUDIES:
        options = {"scale": "cpu", "seeds": 1, "runs": arguments.runs, "only": name}
        reproduce("table2", arguments.results, data_dir=arguments.data_dir, **options)
        found = read_studies(arguments.results / "table2.json")[name]
        stages = [found[stage] for stage in ("ensemble", "statistics", "deltas") if stage in found]
        rows = [row for stage in stages for row in stage["rows"]]
    else:
        outliers = {one: outlier_set(one, dataset, seed=0) for one in DEMO_OUTLIERS}
        chosen = [detector.statistic, "bn_moments", "log_prob", "pixel_knn"]
        chosen.append(get("bn_delta", mixing="moments"))
        options = {"statistics": chosen, "contamination": CONTAMINATIONS, "progress": True}
        found = evaluate(detector, dataset.test, outliers, reference=dataset.train, **options)
        rows = found.to_dict()["rows"]
    table: dict = {}
    for row in rows:
        shares = table.setdefault(row["statistic"], {}).setdefault(row["set"], {})
        shares[f"{row['contamination']:g}"] = round(row["auroc"]["value"], 4)
    return table


if __name__ == "__main__":
    main()
