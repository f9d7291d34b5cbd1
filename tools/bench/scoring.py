"""How long scoring takes, in process and exported, and how long the first answer and the first training step take.

    .venv/bin/python tools/bench/scoring.py --out results/bench_scoring.json

Ratios are of medians of interleaved repeats in one process; cold starts are processes of their own. `--before CHECKOUT`
measures another checkout of the package beside this one, for a table of before and after. Keep the machine free.
"""

import argparse
import json
import pathlib
import sys
import tempfile
from typing import Any

from measuring import ROOT, last_json, medians, run_child, write_result

# Runs with this checkout or an older one, and so uses only what both have.
COLD = """
import json, sys, time
import tensorflow as tf
import tfbnood
name, data = sys.argv[1:]
images = tfbnood.data.load(data).test[:1]
began = time.perf_counter()
detector = tfbnood.load(name)
loaded = time.perf_counter()
detector.predict(images)
print(json.dumps({"load": loaded - began, "first_predict": time.perf_counter() - loaded}))
"""

STEP = """
import json, sys, time
import numpy as np
import tfbnood
network = tfbnood.models.RealNVP.from_preset(sys.argv[1])
network.compile()
images = np.random.RandomState(0).randint(0, 256, (64, *network.image_shape)).astype(np.uint8)
seconds = []
for _ in range(6):
    began = time.perf_counter()
    network.train_on_batch(images)
    seconds.append(time.perf_counter() - began)
print(json.dumps({"first_step": seconds[0], "step": sorted(seconds[1:])[2]}))
"""

WARM = """
import json, pathlib, sys, time
import numpy as np
import tensorflow as tf
import tfbnood
name, data, version, turns = sys.argv[1:]
images = tfbnood.data.load(data).test
detector = tfbnood.load(name)
began = time.perf_counter()
served = tf.saved_model.load(version).signatures["uint8"]
served(images=tf.constant(images[:1]))
loaded = time.perf_counter() - began
ways = {
    "predict": lambda some: detector.predict(some),
    "exported": lambda some: {k: v.numpy() for k, v in served(images=tf.constant(some)).items()},
}
seconds = {(way, count): [] for way in ways for count in (1, 64)}
for turn in range(int(turns) + 1):
    for way, count in seconds:
        began = time.perf_counter()
        ways[way](images[:count])
        if turn:
            seconds[way, count].append(time.perf_counter() - began)
medians = {f"{way}_{count}": float(np.median(times)) for (way, count), times in seconds.items()}
sizes = {
    "saved_model_pb": (pathlib.Path(version) / "saved_model.pb").stat().st_size,
    "export": sum(path.stat().st_size for path in pathlib.Path(version).rglob("*") if path.is_file()),
}
print(json.dumps({**medians, "load_and_first_answer_of_the_export": loaded, **sizes}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--detector", default="fashion_mnist_realnvp")
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--presets", nargs="+", default=["cpu-grey", "paper-grey"])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--before", type=pathlib.Path, help="another checkout, to compare with")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    checkouts = {"now": ROOT}
    if arguments.before:
        checkouts["before"] = arguments.before.resolve()
    found = {name: measure(checkout, name, arguments) for name, checkout in checkouts.items()}
    for name, values in found.items():
        print(f"{name}:", *(f"{key} {value:.4g}" for key, value in values.items()), sep="\n  ")
    result: dict[str, Any] = {"detector": arguments.detector, "data": arguments.data, **found}
    result["ratios"] = {
        f"predict_to_exported_{count}": found["now"][f"predict_{count}"]
        / found["now"][f"exported_{count}"]
        for count in (1, 64)
    }
    if arguments.before:
        result["before_to_now"] = {
            key: found["before"][key] / value for key, value in found["now"].items()
        }
    print(
        json.dumps(
            {key: result[key] for key in ("ratios", "before_to_now") if key in result}, indent=2
        )
    )
    write_result(arguments.out, result)


def measure(checkout: pathlib.Path, name: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds and bytes of one checkout."""
    which = [arguments.detector, arguments.data]
    cold = [run(checkout, COLD, *which) for _ in range(3)]
    found = medians(cold)
    for preset in arguments.presets:
        step = run(checkout, STEP, preset)
        found |= {f"{key}_{preset}": value for key, value in step.items()}
    if name == "before":
        version = str(checkout / "savedmodels" / arguments.detector / "1")
        return found | run(checkout, WARM, *which, version, str(arguments.turns))
    with tempfile.TemporaryDirectory() as folder:
        export = (
            "import sys, tfbnood; d = tfbnood.load(sys.argv[1]); x = tfbnood.data.load(sys.argv[2]);"
            "print('\"%s\"' % d.export(sys.argv[3], held_out=x.calibration))"
        )
        version = run(checkout, export, *which, str(pathlib.Path(folder) / arguments.detector))
        return found | run(checkout, WARM, *which, version, str(arguments.turns))


def run(checkout: pathlib.Path, code: str, *words: str) -> Any:
    """The JSON that code prints last, with the package of a checkout."""
    return last_json(run_child(sys.executable, "-c", code, *words, PYTHONPATH=str(checkout))[0])


if __name__ == "__main__":
    main()
