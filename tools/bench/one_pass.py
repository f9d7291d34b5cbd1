"""Images per second of several statistics of single images, each in a pass of its own and all in one pass, in one run.

    .venv/bin/python tools/bench/one_pass.py fashion_mnist_vae --out results/bench_one_pass.json

`tfbnood.evaluate` scores them in one. Both ways take turns; random pixels do, since time does not depend on them.
"""

import argparse
from collections.abc import Callable

import numpy as np
from measuring import take_turns, write_result

import tfbnood
from tfbnood.statistics.base import EvidenceStatistic, scorer_of

NAMES = ("ensemble", "bn_moments", "log_prob", "complexity", "t_perm", "pixel_pca", "pixel_knn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="detector under savedmodels/")
    parser.add_argument("--n", type=int, default=512, help="images per turn (default: 512)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    model = tfbnood.load(arguments.name).model
    shape = (arguments.n, *model.image_shape)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    fitted: list[EvidenceStatistic] = []
    for name in NAMES:
        statistic = tfbnood.statistics.get(name).fit(model, images)
        assert isinstance(statistic, EvidenceStatistic)
        fitted.append(statistic)
    one_pass = scorer_of(fitted)
    ways: dict[str, Callable[[], object]] = {
        "a pass each": lambda: [one.score(images) for one in fitted],
        "one pass": lambda: one_pass(images),
    }
    times = take_turns(ways, arguments.turns)
    rates = {way: arguments.n / row["seconds"] for way, row in times.items()}
    ratio = rates["one pass"] / rates["a pass each"]
    for way, rate in rates.items():
        print(f"{way}: {rate:.0f} images per second")
    print(f"ratio: {ratio:.2f}")
    result = {"detector": arguments.name, "statistics": NAMES, "images": arguments.n}
    write_result(arguments.out, {**result, "images_a_second": rates, "ratio": ratio})


if __name__ == "__main__":
    main()
