"""What one image costs by shipped detector, and how close scores through Beam are to those in process.

    .venv/bin/python tools/bench/costs.py --out results/costs.json

Costs are milliseconds of processor time, which hardly depend on what else the machine does: `decode` of a PNG file of
the detector's size and of JPEG photographs, `model` of an export in batches of 64 (the second of two passes; the first
one prepares), `load` to start one. The unit of differences is the spread of calibration scores, between their
quartiles: scores lie around 0, where a relative difference means nothing. `p_values_off` counts images whose p-value
differs, which is by one calibration image: one that lies between the two roundings.
"""

import argparse
import io
import json
import logging
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from tfbnood import zoo
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood.data import load
from tfbnood.data.files import read_image

JPEG_SIDES = (256, 640, 2048)
_FOUND: list[dict[str, Any]] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--detectors", nargs="+", default=zoo.list_models())
    parser.add_argument("--images", type=int, default=256, help="per detector (default: 256)")
    parser.add_argument(
        "--plain-graphs",
        action="store_true",
        help="turn TensorFlow's graph optimiser off, and measure differences only: `plain_graphs` of a detector",
    )
    parser.add_argument("--out", help="result file, JSON; detectors that it has already stay in it")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    result: dict[str, Any] = {"images": arguments.images, "detectors": {}}
    if arguments.out and os.path.exists(arguments.out):
        result = json.loads(pathlib.Path(arguments.out).read_text("utf-8"))
    if arguments.plain_graphs:
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    else:
        result["jpeg_decode_ms"] = {str(side): decode_cost(jpeg(side)) for side in JPEG_SIDES}
        print(json.dumps(result["jpeg_decode_ms"]), flush=True)
    for name in arguments.detectors:
        data = name.rpartition("_")[0]
        images = load(data).test[: arguments.images]
        files = [png(image) for image in images]
        if arguments.plain_graphs:
            row = result["detectors"].get(name, {}) | {"plain_graphs": parity(name, images, files)}
        else:
            row = {"image_shape": images.shape[1:], **model_cost(name, images)}
            row["decode_ms"] = decode_cost(files, images.shape[1:])
            row |= parity(name, images, files)
        result["detectors"][name] = row
        print(name, json.dumps(row), flush=True)
        if arguments.out:
            write_json(arguments.out, {**result, "versions": versions(), "machine": machine()})


def png(image: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(content, "PNG")
    return content.getvalue()


def jpeg(side: int) -> list[bytes]:
    """Images of CIFAR-10 on a grid, as many as fill a photograph of that size."""
    tiles = load("cifar10").test[: (side // 32) ** 2]
    count = side // 32
    grid = tiles.reshape(count, count, 32, 32, 3).swapaxes(1, 2).reshape(side, side, 3)
    content = io.BytesIO()
    Image.fromarray(grid).save(content, "JPEG", quality=90)
    return [content.getvalue()] * max(8, 2**22 // side**2)


def decode_cost(files: list[bytes], image_shape: tuple[int, ...] = (32, 32, 3)) -> float:
    """Milliseconds of processor per file, fitted to the shape."""
    read_image(files[0], image_shape)
    return round(_cpu_ms(lambda: [read_image(file, image_shape) for file in files]) / len(files), 4)


def model_cost(name: str, images: np.ndarray) -> dict[str, float]:
    """Milliseconds of processor per image and per start of an export, through the handler of Beam."""
    from tfbnood.beam import ExportHandler

    handler = ExportHandler(zoo.base(name))
    held: list[Any] = []

    def start() -> None:
        held.append(handler.load_model())
        handler.run_inference(list(images[:64]), held[0])

    def score() -> None:
        for first in range(0, len(images), 64):
            handler.run_inference(list(images[first : first + 64]), held[0])

    loading = _cpu_ms(start)
    score()
    rows = -(-len(images) // 64) * 64  # Short batches are completed.
    return {"model_ms": round(_cpu_ms(score) / rows, 3), "load_ms": round(loading)}


def parity(name: str, images: np.ndarray, files: list[bytes]) -> dict[str, Any]:
    """The largest difference between scores through Beam and those of the detector in process."""
    import apache_beam as beam

    from tfbnood.beam import ScoreImages

    detector = zoo.load(name)
    assert detector.calibration is not None
    expected = detector.predict(images)
    null = detector.calibration.null_of_images(1)
    _FOUND.clear()
    with beam.Pipeline("FnApiRunner") as pipeline:
        pairs = pipeline | beam.Create(list(enumerate(files)))
        _ = (pairs | ScoreImages(zoo.base(name))).scores | beam.Map(_keep)
    found = sorted(_FOUND, key=lambda record: record["key"])
    assert len(found) == len(images)
    scores, p_values, alarms = (
        np.array([record[column] for record in found]) for column in ("score", "p_value", "is_ood")
    )
    difference = np.abs(scores - expected.score)
    spread = np.subtract(*np.percentile(null, [75, 25]))
    count = len(null) + 1
    ranks = np.abs(np.rint(p_values * count) - np.rint(expected.p_value * count))
    return {
        "largest_difference": float(difference.max()),
        "relative_to_score": float((difference / np.abs(expected.score)).max()),
        "relative_to_spread": float(difference.max() / spread),
        "p_values_off": int((ranks > 0).sum()),
        "largest_p_value_difference": float(ranks.max() / count),
        "alarms": int(alarms.sum()),
        "alarms_that_differ": int((alarms != (expected.p_value <= _fpr(name))).sum()),
    }


def _fpr(name: str) -> float:
    from tfbnood.beam import find_export

    return find_export(zoo.base(name)).fpr


def _keep(record: dict[str, Any]) -> None:
    # A function of a module goes by its name: the runner works in this process.
    import __main__

    __main__._FOUND.append(record)


def _cpu_ms(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return 1000 * (time.process_time() - began)


if __name__ == "__main__":
    main()
