"""What fitting and scoring cost by number of images: CPU time per image and peak memory, beside other detectors.

    .venv/bin/python tools/bench/growth.py --alibi PYTHON --out results/bench_growth.json

Every case is a process of its own with one thread: it fits a detector to so many training images and scores as many
others. Cases take turns, those of more than `--repeat-below` seconds only once; medians are kept. `score_cpu_ms` are
milliseconds of processor per image after a first call with 64 images; `fit_cpu_seconds` are all of the fit, with what
it compiles. A case is not run where the two before it foretell more than `--most-seconds` or `--most-gigabytes`.

`--alibi` is a Python with `pip install "alibi-detect[tensorflow]"`, which wants an older TensorFlow than the package.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from measuring import Stopwatch, last_json, medians, peak_mb, run_child, write_result

COUNTS = (1000, 2000, 4000, 8000, 16_000)
Fit = Callable[["Images"], None]
Score = Callable[["Images"], object]


class Images(NamedTuple):
    """The first images of a file, as an array or read piece by piece."""

    path: str
    count: int
    shape: tuple[int, ...]

    def array(self) -> np.ndarray:
        return np.concatenate(list(self.batches()))

    def rows(self) -> np.ndarray:
        """Pixels in 0–1, float32 `[n, d]`, as scikit-learn takes them."""
        return self.array().reshape(self.count, -1) / np.float32(255)

    def batches(self) -> Iterator[np.ndarray]:
        size = int(np.prod(self.shape))
        with open(self.path, "rb") as file:
            for start in range(0, self.count, 64):
                some = min(64, self.count - start)
                yield np.fromfile(file, np.uint8, some * size).reshape(some, *self.shape)


def likelihood_detector() -> tuple[Fit, Score]:
    """The shipped detector, its statistic fitted anew; the networks of `pretext` stay, which take minutes to train."""
    import tfbnood

    shipped = tfbnood.load("fashion_mnist_vae")
    statistic = tfbnood.statistics.get("ensemble").take(shipped.statistic.member("pretext"))
    return _ours(shipped.model, statistic)


def network_detector() -> tuple[Fit, Score]:
    import tfbnood

    return _ours(tfbnood.networks.load("efficientnet-lite0", size=32), "auto")


def pixel_detector() -> tuple[Fit, Score]:
    return _ours(None, "pixel_pca")


def _ours(model: Any, statistic: Any) -> tuple[Fit, Score]:
    import tensorflow as tf

    import tfbnood

    tf.constant(0)  # What TensorFlow takes is not the fit's.
    held: list[tfbnood.Detector] = []
    return (
        lambda images: held.append(tfbnood.Detector(model, statistic, reference=images.batches())),
        lambda images: held[0].score(images.batches()),
    )


def isolation_forest() -> tuple[Fit, Score]:
    from sklearn.ensemble import IsolationForest

    return _of_scikit_learn(IsolationForest(random_state=0))


def local_outlier_factor() -> tuple[Fit, Score]:
    from sklearn.neighbors import LocalOutlierFactor

    return _of_scikit_learn(LocalOutlierFactor(novelty=True))


def one_class_svm() -> tuple[Fit, Score]:
    from sklearn.svm import OneClassSVM

    # By default half of the images are support vectors, which would be ten times as slow.
    return _of_scikit_learn(OneClassSVM(nu=0.05))


def _of_scikit_learn(estimator: Any) -> tuple[Fit, Score]:
    return (
        lambda images: estimator.fit(images.rows()),
        lambda images: estimator.score_samples(images.rows()),
    )


def pca() -> tuple[Fit, Score]:
    from sklearn.decomposition import PCA

    estimator = PCA(64, random_state=0)

    def error(images: Images) -> np.ndarray:
        rows = images.rows()
        return np.square(rows - estimator.inverse_transform(estimator.transform(rows))).mean(axis=1)

    return lambda images: estimator.fit(images.rows()), error


def outlier_vae() -> tuple[Fit, Score]:
    """The network of alibi-detect's page on CIFAR-10, for one epoch; that page trains for 50."""
    import keras
    from alibi_detect.od import OutlierVAE

    layers = keras.layers
    options = {"strides": 2, "padding": "same"}
    encoder = keras.Sequential(
        [layers.InputLayer((32, 32, 3))]
        + [layers.Conv2D(width, 4, activation="relu", **options) for width in (64, 128, 512)]
    )
    decoder = keras.Sequential(
        [
            layers.InputLayer((1024,)),
            layers.Dense(4 * 4 * 128),
            layers.Reshape((4, 4, 128)),
            layers.Conv2DTranspose(256, 4, activation="relu", **options),
            layers.Conv2DTranspose(64, 4, activation="relu", **options),
            layers.Conv2DTranspose(3, 4, activation="sigmoid", **options),
        ]
    )
    detector = OutlierVAE(
        0.015, encoder_net=encoder, decoder_net=decoder, latent_dim=1024, samples=2
    )

    def pixels(images: Images) -> np.ndarray:
        return images.array() / np.float32(255)

    return (
        lambda images: detector.fit(pixels(images), epochs=1, verbose=False),
        lambda images: detector.predict(pixels(images)),
    )


def mmd_drift() -> tuple[Fit, Score]:
    from alibi_detect.cd import MMDDrift

    held: list[Any] = []
    return (
        lambda images: held.append(MMDDrift(images.rows(), backend="tensorflow")),
        lambda images: held[0].predict(images.rows()),
    )


class Method(NamedTuple):
    """Where it comes from, on which data, and how it is made."""

    library: str
    data: str
    make: Callable[[], tuple[Fit, Score]]


METHODS = {
    "`fashion_mnist_vae`, `ensemble`": Method("tfbnood", "fashion_mnist", likelihood_detector),
    "pixels, `pixel_pca`": Method("tfbnood", "fashion_mnist", pixel_detector),
    "IsolationForest": Method("scikit-learn", "fashion_mnist", isolation_forest),
    "PCA, reconstruction": Method("scikit-learn", "fashion_mnist", pca),
    "LocalOutlierFactor": Method("scikit-learn", "fashion_mnist", local_outlier_factor),
    "OneClassSVM": Method("scikit-learn", "fashion_mnist", one_class_svm),
    "EfficientNet-Lite0 at 32 pixels, `ensemble`": Method("tfbnood", "cifar10", network_detector),
    "OutlierVAE": Method("alibi-detect", "cifar10", outlier_vae),
    "MMDDrift": Method("alibi-detect", "cifar10", mmd_drift),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--turns", type=int, default=3, help="(default: 3)")
    parser.add_argument("--alibi", help="a Python with alibi-detect; without it those are left out")
    parser.add_argument("--repeat-below", type=float, default=10, help="of CPU (default: 10)")
    parser.add_argument("--most-seconds", type=float, default=150, help="of CPU (default: 150)")
    parser.add_argument("--most-gigabytes", type=float, default=6, help="(default: 6)")
    parser.add_argument("--out", help="result file, JSON; other methods stay in it")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(json.loads(arguments.one))))
        return
    measure_all(arguments)


def measure_all(arguments: argparse.Namespace) -> None:
    """Runs all cases in turns, and writes what is known after each."""
    pythons = {"alibi-detect": arguments.alibi}
    methods = {
        name: METHODS[name]
        for name in arguments.methods
        if pythons.get(METHODS[name].library, sys.executable)
    }
    names = ("turns", "repeat_below", "most_seconds", "most_gigabytes")
    about = {name: getattr(arguments, name) for name in names}
    runs: dict[str, dict[int, list[dict[str, float]]]] = {name: {} for name in methods}
    more_versions = alibi_versions(arguments.alibi) if arguments.alibi else {}
    with tempfile.TemporaryDirectory() as folder:
        files = {data: save(data, folder, max(arguments.counts)) for data in data_of(methods)}
        for _ in range(arguments.turns):
            for count in sorted(arguments.counts):
                for name, method in methods.items():
                    if not is_wanted(runs[name], count, arguments):
                        continue
                    python = pythons.get(method.library) or sys.executable
                    case = json.dumps({"name": name, "count": count, **files[method.data]})
                    printed, _ = run_child(python, __file__, "--one", case, threads=1)
                    runs[name].setdefault(count, []).append(last_json(printed))
                    print(f"{name:45}{count:6}", json.dumps(runs[name][count][-1]), flush=True)
            rows = {name: row(methods[name], of) for name, of in runs.items()}
            result = {"counts": sorted(arguments.counts), "threads": 1, **about, "methods": rows}
            write_result(arguments.out, with_others(arguments.out, result), more_versions)


def with_others(out: str | None, result: dict[str, Any]) -> dict[str, Any]:
    """The result with methods that the file has already, in the order of the table."""
    known = json.loads(pathlib.Path(out).read_text("utf-8")) if out and os.path.exists(out) else {}
    rows = {**known.get("methods", {}), **result["methods"]}
    ordered = {name: rows[name] for name in METHODS if name in rows}
    return {**result, "methods": ordered, "versions": known.get("versions", {})}


def measure(case: dict[str, Any]) -> dict[str, float]:
    """Fits and scores in this process."""
    shape = tuple(case["shape"])
    fit, score = METHODS[case["name"]].make()
    start = peak_mb()
    watch = Stopwatch()
    fit(Images(case["fit"], case["count"], shape))
    fitted = watch.read()
    score(Images(case["score"], 64, shape))
    watch = Stopwatch()
    score(Images(case["score"], case["count"], shape))
    scored = watch.read()
    return {
        "count": case["count"],
        "fit_seconds": round(fitted["seconds"], 3),
        "fit_cpu_seconds": round(fitted["cpu_seconds"], 3),
        "score_ms": round(1000 * scored["seconds"] / case["count"], 4),
        "score_cpu_ms": round(1000 * scored["cpu_seconds"] / case["count"], 4),
        "start_MB": round(start, 1),
        "peak_MB": round(peak_mb(), 1),
    }


def is_wanted(
    runs: dict[int, list[dict[str, float]]], count: int, arguments: argparse.Namespace
) -> bool:
    """Whether a case is cheap enough to run, or to run again."""
    cost = {known: medians([total(one) for one in of]) for known, of in runs.items()}
    if count in runs:
        return cost[count]["seconds"] < arguments.repeat_below
    if len(runs) < 2:
        return True
    (before, then), (last, now) = sorted(cost.items())[-2:]
    most = {"seconds": arguments.most_seconds, "gigabytes": arguments.most_gigabytes}
    # By as much as from the last but one to the last, for every doubling.
    doublings = np.log(count / last) / np.log(last / before)
    return all(
        now[what] * max(1.0, now[what] / max(then[what], 1e-3)) ** doublings < most[what]
        for what in most
    )


def total(found: dict[str, float]) -> dict[str, float]:
    """What a case took: CPU seconds of fit and scores, and gigabytes beyond those of the libraries."""
    return {
        "seconds": found["fit_cpu_seconds"] + found["score_cpu_ms"] * found["count"] / 1000,
        "gigabytes": (found["peak_MB"] - found["start_MB"]) / 1000,
    }


def row(method: Method, runs: dict[int, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians by number of images, and how many times the first the last cost of an image is."""
    by_count = {str(count): {**medians(of), "turns": len(of)} for count, of in sorted(runs.items())}
    rows = list(by_count.values())
    first, last = rows[0], rows[-1]
    return {
        "library": method.library,
        "data": method.data,
        "by_count": by_count,
        "score_cost_grows_by": round(last["score_cpu_ms"] / first["score_cpu_ms"], 2),
        "memory_grows_by_MB": round(last["peak_MB"] - first["peak_MB"], 1),
    }


def data_of(methods: dict[str, Method]) -> list[str]:
    return sorted({method.data for method in methods.values()})


def save(data: str, folder: str, most: int) -> dict[str, Any]:
    """Files of images to fit to and of others to score: a whole data set in a process would hide what grows."""
    from tfbnood.data import load

    x = load(data)
    others = np.concatenate([x.train[most:], x.calibration, x.test])
    files = {"fit": x.train[:most], "score": others[:most]}
    for name, some in files.items():
        if len(some) < most:
            raise SystemExit(f"{data} must have {most} images to {name}. Received: {len(some)}")
    paths = {}
    for name, some in files.items():
        paths[name] = str(pathlib.Path(folder) / f"{data}-{name}")
        some.tofile(paths[name])
    return {**paths, "shape": x.train.shape[1:]}


def alibi_versions(python: str) -> dict[str, str]:
    code = (
        "import json; from importlib.metadata import version;"
        "print(json.dumps({'alibi-detect': version('alibi-detect'),"
        "'tensorflow of alibi-detect': version('tensorflow')}))"
    )
    return last_json(run_child(python, "-c", code)[0])


if __name__ == "__main__":
    main()
