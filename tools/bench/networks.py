"""How large, how long: images per second, fit time and memory of detectors on networks by image size.

    .venv/bin/python tools/bench/networks.py --out results/bench_networks.json

Every row is a process of its own, so that its peak memory is its own. Speeds are medians of repeats after a first call.
Keep the machine free.
"""

import argparse
import sys

from measuring import last_json, run_child, write_result

ROWS = (
    ("efficientnet-lite0", 96),
    ("efficientnet-lite0", 128),
    ("efficientnet-lite0", 224),
    ("fashion_mnist_vae", 28),
    ("cifar10_realnvp", 32),
    ("cifar10_pixelcnn", 32),
)

# Speed does not depend on what the weights are: those of keras.applications are random ones.
ROW = """
import json, resource, statistics, sys, time
import numpy as np
import tfbnood
name, side, reference = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = np.random.RandomState(0)
if name in tfbnood.list_models():
    detector, fit = tfbnood.load(name), None
    images = random.randint(2, 256, (256, *detector.image_shape)).astype(np.uint8)
else:
    weights = "imagenet" if name == "efficientnet-lite0" else None
    network = tfbnood.networks.load(name, size=side, weights=weights)
    images = random.randint(2, 256, (reference, side, side, 3)).astype(np.uint8)
    began = time.perf_counter()
    detector = tfbnood.Detector(network, reference=images)
    fit = time.perf_counter() - began
def speed(count, repeats):
    detector.score(images[:count])
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        detector.score(images[:count])
        seconds.append(time.perf_counter() - began)
    return count / statistics.median(seconds)
found = {"images_per_second": round(speed(192, 3), 1), "one_image_ms": round(1000 / speed(1, 9), 1)}
found["fit_seconds"] = None if fit is None else round(fit, 1)
found["detector_megabytes"] = round(sum(a.nbytes for a in detector.statistic.get_state().values()) / 1e6, 1)
found["peak_gigabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=int, default=2000, help="(default: 2000)")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    rows = []
    for name, side in ROWS:
        words = (name, str(side), str(arguments.reference))
        printed, _ = run_child(sys.executable, "-c", ROW, *words)
        rows.append({"name": name, "side": side, **last_json(printed)})
        print(rows[-1], flush=True)
    write_result(arguments.out, {"reference": arguments.reference, "rows": rows})


if __name__ == "__main__":
    main()
