"""`predict` beside loops over the same model: eager, one image per call, as research code often scores.

    python tools/bench/one_by_one.py --out results/bench_one_by_one.json

Needs the extra `bench`, fashion_mnist and cifar10. Ways take turns in one process with one thread; milliseconds are per
image, medians of the turns. Loops are over `--few` images, since they are slow. Two scores:

- `log_prob` of `fashion_mnist_realnvp`, beside the same Keras model and an equal one in PyTorch, in evaluation mode;
- `features` of EfficientNet-Lite0 at 96 pixels, beside the same network and a nearest-neighbour search in NumPy.

That loops of the same model have the scores of `predict` is checked first.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from measuring import take_turns, write_result
from torch_realnvp import count_parameters, log_prob, make_flow, to_pixels
from training import set_threads

import tfbnood
from tfbnood._core.presets import PRESETS

Scores = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=256, help="for predict (default: 256)")
    parser.add_argument("--few", type=int, default=16, help="for loops (default: 16)")
    parser.add_argument("--turns", type=int, default=5, help="(default: 5)")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    set_threads(1)
    import torch

    settings = {name: getattr(arguments, name) for name in ("images", "few", "turns")}
    scores = {
        make.__name__: compare(*make(arguments.images), arguments=arguments)
        for make in (log_prob_of_realnvp, features_of_network)
    }
    result = {**settings, "threads": 1, "scores": scores}
    write_result(arguments.out, result, {"torch": torch.__version__})


def log_prob_of_realnvp(count: int) -> tuple[np.ndarray, tfbnood.Detector, Scores, Scores]:
    """Images, detector, and eager scores by Keras and by PyTorch."""
    import torch

    x = tfbnood.data.load("fashion_mnist")
    shipped = tfbnood.load("fashion_mnist_realnvp")
    model = shipped.model
    detector = tfbnood.Detector(model, "log_prob", reference=x.train[:64])
    preset = PRESETS["realnvp"][shipped.about["manifest"]["training"]["preset"]]
    flow = make_flow(preset.image_shape, preset.config).eval()
    sizes = count_parameters(flow), sum(np.prod(one.shape) for one in model.trainable_weights)
    if sizes[0] != sizes[1]:
        raise SystemExit(f"the models must be of equal size. Received: {sizes}")

    def by_torch(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return -log_prob(flow, to_pixels(images)).numpy()

    return x.test[:count], detector, lambda images: -model.log_prob(images).numpy(), by_torch


def features_of_network(count: int) -> tuple[np.ndarray, tfbnood.Detector, Scores]:
    """Images, detector, and eager scores by Keras."""
    x = tfbnood.data.load("cifar10")
    network = tfbnood.networks.load("efficientnet-lite0", size=96)
    detector = tfbnood.Detector(network, "features", reference=x.train[:500])
    known = detector.statistic.known_.astype(np.float32)
    neighbours = detector.statistic.neighbours

    def by_keras(images: np.ndarray) -> np.ndarray:
        features = network.features(images).numpy()
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        similar = np.sort(features @ known.T, axis=1)
        return 1 - similar[:, -neighbours:].mean(axis=1)

    return x.test[:count], detector, by_keras


def compare(
    images: np.ndarray,
    detector: tfbnood.Detector,
    by_keras: Scores,
    by_torch: Scores | None = None,
    arguments: Any = None,
) -> dict[str, dict[str, float]]:
    """Milliseconds per image of each way, and how many times as long as `predict` it takes."""
    few, sixty_four = images[: arguments.few], images[:64]
    detector.calibrate(sixty_four)
    found = np.concatenate([by_keras(few[row : row + 1]) for row in range(len(few))])
    np.testing.assert_allclose(found, detector.predict(few).score, rtol=1e-3, atol=1e-4)

    def loop(score: Callable[[np.ndarray], Any]) -> Callable[[], object]:
        return lambda: [score(few[row : row + 1]) for row in range(len(few))]

    ways: dict[str, tuple[Callable[[], object], int]] = {
        "`predict`": (lambda: detector.predict(images), len(images)),
        "`predict`, one image per call": (loop(detector.predict), len(few)),
        "Keras, eager, 64 per call": (lambda: by_keras(sixty_four), 64),
        "Keras, eager, one per call": (loop(by_keras), len(few)),
    }
    if by_torch is not None:
        ways["PyTorch, eager, 64 per call"] = (lambda: by_torch(sixty_four), 64)
        ways["PyTorch, eager, one per call"] = (loop(by_torch), len(few))
    calls = {way: call for way, (call, _) in ways.items()}
    rows: dict[str, dict[str, float]] = {}
    for way, times in take_turns(calls, arguments.turns).items():
        count = ways[way][1]
        rows[way] = {
            "ms": 1000 * times["seconds"] / count,
            "cpu_ms": 1000 * times["cpu_seconds"] / count,
        }
        rows[way]["cpu_to_predict"] = rows[way]["cpu_ms"] / rows["`predict`"]["cpu_ms"]
        print(f"{way:32}", *(f"{name} {value:.3g}" for name, value in rows[way].items()))
    return rows


if __name__ == "__main__":
    main()
