"""How an ONNX file compares with the SavedModel of the same detector: CPU time, size, and differences of the answers.

    .venv/bin/python tools/bench/export_onnx.py --out results/onnx.json

One thread each, CPU seconds, medians of interleaved repeats in one process. Differences are from the detector in
process, on test images and inverted ones. Needs fashion_mnist and cifar10.
"""

import argparse
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import tensorflow as tf
from measuring import take_turns, write_result

import tfbnood
from tfbnood.export.onnx import export_onnx

FPR = 0.05


def network(data: Any) -> tfbnood.Detector:
    model = tfbnood.networks.load("efficientnet-lite0", size=96)
    return tfbnood.Detector(model, reference=data.train[:400])


def pixels(data: Any) -> tfbnood.Detector:
    return tfbnood.Detector(None, "pixel_pca", reference=data.train[:2000])


def moments(name: str) -> Callable[[Any], tfbnood.Detector]:
    return lambda data: tfbnood.Detector(
        tfbnood.load(name).model, "bn_moments", reference=data.train[:500]
    )


def ensemble(data: Any) -> tfbnood.Detector:
    shipped = tfbnood.load("fashion_mnist_vae")
    statistic = tfbnood.statistics.get("ensemble", complexity=False)
    statistic.take(shipped.statistic.member("pretext"))
    return tfbnood.Detector(shipped.model, statistic, reference=data.train[:1000])


DETECTORS = {
    "efficientnet-lite0 at 96 pixels": ("cifar10", network),
    "pixel_pca": ("fashion_mnist", pixels),
    "bn_moments of fashion_mnist_vae": ("fashion_mnist", moments("fashion_mnist_vae")),
    "bn_moments of fashion_mnist_realnvp": ("fashion_mnist", moments("fashion_mnist_realnvp")),
    "ensemble without complexity of fashion_mnist_vae": ("fashion_mnist", ensemble),
}


def measure(detector: tfbnood.Detector, test: np.ndarray, repeats: int) -> dict[str, Any]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        began = time.process_time()
        path = export_onnx(detector, base / "model.onnx", fpr=FPR)
        seconds = time.process_time() - began
        version = detector.export(base / "base", fpr=FPR)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options)
        served = tf.saved_model.load(str(version))
        row: dict[str, Any] = {
            "export_cpu_seconds": round(seconds, 1),
            "megabytes": round(path.stat().st_size / 1e6, 2),
        }
        for count in (1, 64):
            images = test[:count].astype(np.float32)
            ways = {
                "onnxruntime": lambda images=images: session.run(None, {"images": images}),
                "tensorflow": lambda images=images: served.signatures["serving_default"](
                    images=tf.constant(images)
                ),
            }
            times = take_turns(ways, repeats, warm=2)
            seconds = {way: of["cpu_seconds"] for way, of in times.items()}
            row |= {f"{way}_{count}": round(of, 5) for way, of in seconds.items()}
            ratio = seconds["onnxruntime"] / seconds["tensorflow"]
            row[f"onnxruntime_to_tensorflow_{count}"] = round(ratio, 3)
        return row | differences(session, detector, test)


def differences(
    session: onnxruntime.InferenceSession, detector: tfbnood.Detector, test: np.ndarray
) -> dict[str, Any]:
    """How far the file's answers are from the detector's."""
    images = np.concatenate([test, 255 - test])
    parts = [
        session.run(["score", "p_value", "is_ood"], {"images": batch.astype(np.float32)})
        for batch in np.array_split(images, len(images) // 64)
    ]
    score, p_value, is_ood = (np.concatenate(part) for part in zip(*parts, strict=True))
    expected = detector.predict(images, fpr=FPR)
    apart = np.abs(score - expected.score) / (1 + np.abs(expected.score))
    return {
        "images": len(images),
        "calibration_images": len(detector.calibration.null_of_images(1)),
        "largest_difference_of_scores": float(f"{apart.max():.2g}"),
        "other_p_values": int((p_value != expected.p_value.astype(np.float32)).sum()),
        "other_alarms": int((is_ood != expected.is_ood).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9, help="(default: 9)")
    parser.add_argument("--images", type=int, default=256, help="test images (default: 256)")
    parser.add_argument("--out", required=True, help="result file, JSON")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rows: dict[str, Any] = {}
    for name, (data, make) in DETECTORS.items():
        x = tfbnood.data.load(data)
        detector = make(x).calibrate(x.calibration[:500])
        rows[name] = {
            "data": data,
            **measure(detector, x.test[: arguments.images], arguments.repeats),
        }
        print(name, rows[name], flush=True)
        settings = {"repeats": arguments.repeats, "threads": 1, "seed": 0}
        about = {"onnxruntime": onnxruntime.__version__}
        write_result(arguments.out, {**settings, "rows": rows}, about)


if __name__ == "__main__":
    main()
