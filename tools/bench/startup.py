"""How long it takes to start: help, imports, and the first answer of a detector, of its export and of PyTorch.

    python tools/bench/startup.py --out results/bench_startup.json

Needs the extra `bench` and a checkout, which has the exports. Every row is a process from start to end. Rows take turns
after a first one that does not count; medians are kept. CPU seconds hardly depend on what else the machine does.
"""

import argparse
import sys

from measuring import ROOT, medians, run_child, write_result

DETECTOR = "fashion_mnist_realnvp"
IMAGE = (
    "import numpy as np; image = np.random.RandomState(0).randint(0, 256, (1, 28, 28, 1), np.uint8)"
)
PREDICT = f"{IMAGE}; import tfbnood; tfbnood.load('{DETECTOR}').predict(image)"
EXPORT = (
    f"{IMAGE}; import tensorflow as tf; module = tf.saved_model.load('{ROOT}/savedmodels/{DETECTOR}/1');"
    "module.signatures['uint8'](images=tf.constant(image))['score'].numpy()"
)
TORCH = (
    f"{IMAGE}; import torch; from tfbnood._core.presets import PRESETS; import torch_realnvp as t;"
    "preset = PRESETS['realnvp']['cpu-grey']; flow = t.make_flow(preset.image_shape, preset.config).eval();"
    "torch.set_grad_enabled(False); t.log_prob(flow, t.to_pixels(image)).numpy()"
)
ROWS = {
    "Python alone": ("-c", "pass"),
    "`tfbnood --help`": ("-m", "tfbnood", "--help"),
    "`import tfbnood`": ("-c", "import tfbnood"),
    "`import torch`": ("-c", "import torch"),
    "`import tensorflow`": ("-c", "import tensorflow"),
    "PyTorch: make an equal RealNVP, first answer": ("-c", TORCH),
    "the export: load with TensorFlow, first answer": ("-c", EXPORT),
    "the detector: `tfbnood.load`, first `predict`": ("-c", PREDICT),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="(default: 5)")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    import torch

    found: dict[str, list[dict[str, float]]] = {name: [] for name in ROWS}
    for turn in range(arguments.turns + 1):
        for name, words in ROWS.items():
            _, times = run_child(sys.executable, *words)
            if turn:  # The first one brings files into memory.
                found[name].append(times)
    rows = {name: medians(times) for name, times in found.items()}
    for name, row in rows.items():
        print(f"{name:50} {row['seconds']:6.2f} s {row['cpu_seconds']:6.2f} s of CPU")
    result = {"detector": DETECTOR, "turns": arguments.turns, "rows": rows}
    write_result(arguments.out, result, {"torch": torch.__version__})


if __name__ == "__main__":
    main()
