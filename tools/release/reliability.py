"""What the reliability page claims in figures: false alarms of every shipped detector, and equal scores at every door.

    .venv/bin/python tools/release/reliability.py [NAME …] [--out results/reliability.json]

A name that is measured again replaces its entry in the result file; the others stay.

False alarms are counted on in-distribution test images. The count at a nominal rate is beta-binomial over the draws of
calibration and test images (Vovk 2012), so the file also has the range that 95 % of all draws fall into.

The doors are the detector in Python, its export, the client through the stand-in server, and Beam. Differences of
scores are in units of the interquartile range of the calibration scores: scores themselves may lie around 0.
"""

import argparse
import json
import pathlib
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.stats import betabinom

from tfbnood import zoo
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import take
from tfbnood.beam.pipeline import score_pipeline
from tfbnood.calibration.rates import default_false_alarm_rate
from tfbnood.data import Dataset, load
from tfbnood.data.pools import outlier_set
from tfbnood.detector import Detector
from tfbnood.serving import Client, Server, models_from

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATES = (0.01, 0.05, 0.1)
# Of these, half are rotated: alarms must agree as well as their absence.
IMAGES_AT_DOORS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=zoo.list_models(), metavar="NAME")
    parser.add_argument("--images", type=int, default=2000, help="test images (default: 2000)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "reliability.json")
    arguments = parser.parse_args()
    found = json.loads(arguments.out.read_text())["found"] if arguments.out.is_file() else {}
    for name in arguments.names:
        detector, data = zoo.load(name), load(zoo.manifest(name)["training"]["data"])
        found[name] = {
            "data": data.name,
            "calibration_images": len(detector.calibration.null_of_images(1)),
            "false_alarms": count_false_alarms(detector, take(data.test, arguments.images, 0)),
            "doors": compare_doors(detector, data),
        }
        print(json.dumps({name: found[name]}), flush=True)
        about = {"command": "tools/release/reliability.py", "versions": versions()}
        ordered = {one: found[one] for one in zoo.list_models() if one in found}
        write_json(arguments.out, {**about, "machine": machine(), "found": ordered})


def count_false_alarms(detector: Detector, images: np.ndarray) -> dict[str, Any]:
    """Alarms among in-distribution images by nominal rate, and the range of 95 % of all draws."""
    p_values = detector.p_values(images)
    calibration = len(detector.calibration.null_of_images(1))
    alarms = {}
    for rate in RATES:
        rank = int(np.floor(rate * (calibration + 1)))
        expected = betabinom(len(images), rank, calibration + 1 - rank)
        alarms[f"{rate:g}"] = {
            "alarms": int((p_values <= rate).sum()),
            "expected_95": [int(count) for count in expected.ppf([0.025, 0.975])],
        }
    return {"images": len(images), "by_rate": alarms}


def compare_doors(detector: Detector, data: Dataset) -> dict[str, Any]:
    """By door, how far its answers are from those of the detector in Python, on the same images."""
    half = IMAGES_AT_DOORS // 2
    images = np.concatenate([data.test[:half], outlier_set("rotation", data, seed=0)[:half]])
    rate = default_false_alarm_rate(detector.calibration.fewest)
    expected = detector.predict(images, fpr=rate)
    spread = np.subtract(*np.percentile(detector.calibration.null_of_images(1), [75, 25]))
    with tempfile.TemporaryDirectory() as folder:
        doors = ask_doors(detector, pathlib.Path(folder), images, rate)
    return {
        "images": len(images),
        "by_door": {
            door: {
                "largest_score_difference": float(
                    np.abs(answers["score"] - expected.score).max() / spread
                ),
                # They count calibration scores: another one lies at least this far.
                "other_p_values": int((np.abs(answers["p_value"] - expected.p_value) > 1e-6).sum()),
                "other_decisions": int((answers["is_ood"] != expected.is_ood).sum()),
            }
            for door, answers in doors.items()
        },
    }


def ask_doors(
    detector: Detector, folder: pathlib.Path, images: np.ndarray, rate: float
) -> dict[str, dict[str, np.ndarray]]:
    """Score, p-value and decision of every image, by door."""
    base, pictures = folder / "detector", folder / "pictures"
    served = tf.saved_model.load(str(detector.export(base, fpr=rate)))
    signature = served.signatures["serving_default"]
    exported = signature(images=tf.constant(images, tf.float32))
    with Server(models_from(base), port=0) as server:
        by_client = Client(server.url, "detector").score(images)
    pictures.mkdir()
    for index, image in enumerate(images):
        (pictures / f"{index:03}.png").write_bytes(tf.io.encode_png(image).numpy())
    options = ["--runner=FnApiRunner"]
    score_pipeline(base, f"{pictures}/*.png", output=folder / "scores.jsonl", options=options)
    lines = [
        json.loads(line)
        for path in folder.glob("scores-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    lines.sort(key=lambda line: line["key"])
    keys = ("score", "p_value", "is_ood")
    return {
        "export": {key: exported[key].numpy() for key in keys},
        "client and stand-in server": {key: getattr(by_client, key) for key in keys},
        "Beam": {key: np.array([line[key] for line in lines]) for key in keys},
    }


if __name__ == "__main__":
    main()
