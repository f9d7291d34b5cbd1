"""False alarms and delays of `tfbnood.Monitor` on streams of real images' scores, beside two usual rules.

    .venv/bin/python tools/bench/monitor.py --cache runs/bench_monitor --out results/monitor.json

Every image is scored once; scores are kept in `--cache` and results in `--out`, part by part: the same command resumes.
A stream and the held-out scores it is compared with are independent draws, with replacement, from the scores of one set
of test images: nothing has changed until outliers are mixed in. Streams are simulated many at once, as by a monitor
with `thin=1`, which is checked against the real one. Parts that are "thinned as measured" are of the real one. The
rules beside it, on the same kind of streams:

- alibi-detect's online MMD (Gaussian kernel, median width, thresholds by bootstrap for the same expected run time), on
  the scores and on 32 principal components of the pixels;
- "5 alarms (p ≤ 1 %) in the last 100 images".
"""

import argparse
import functools
import itertools
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from monitor_anchors import anchors, anchors_of_jumper
from monitor_counts import AFTER, CHANGE, Results, delay, first, interval
from online_mmd import WINDOW, OnlineMmd, gaussian_kernel
from simulated_monitor import evidence, p_values

from tfbnood._core.files import atomic_path
from tfbnood._core.provenance import array_sha256
from tfbnood.calibration.conformal import conformal_p_values
from tfbnood.monitor import AutocorrelationWarning, Monitor
from tfbnood.monitor.bets import LEVELS, log_bets, log_mean_exp
from tfbnood.monitor.estimates import likely_onsets, onset
from tfbnood.monitor.estimates import share as estimated_share

SETTINGS = {
    "fashion_mnist_vae": ("fashion_mnist", ("mnist", "rotation")),
    "cifar10_realnvp": ("cifar10", ("svhn", "lsun")),
}
SHARES = (1.0, 0.25, 0.1, 0.05, 0.01)
COMPONENTS = 32
# MMD's thresholds are slow to find: its streams share so many sets of held-out images.
HELD_OUT_SETS, BOOTSTRAPS = 5, 50_000
NEVER = 1e300
# Streams that are simulated side by side.
AT_ONCE = 250

Draw = Callable[[np.random.Generator], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="folder for scores")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="result file, JSON")
    parser.add_argument("--n", type=int, default=3000, help="images per set (default: 3000)")
    parser.add_argument("--streams", type=int, default=1000, help="clean streams (default: 1000)")
    parser.add_argument("--few", type=int, default=200, help="streams of other kinds, and delays")
    parser.add_argument("--length", type=int, default=5000, help="images per clean stream")
    parser.add_argument("--held-out", type=int, default=1000, help="scores to compare with")
    parser.add_argument("--run-length", type=float, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="measure parts with this text in their names")
    options = parser.parse_args()
    warnings.simplefilter("ignore", AutocorrelationWarning)
    settings = {
        name: of for name, of in vars(options).items() if name not in ("cache", "out", "only")
    }
    settings |= {"window": WINDOW, "bootstraps": BOOTSTRAPS, "change": CHANGE, "after": AFTER}
    results = Results(options.out, settings, options.only)
    results.add("anchors", anchors, options)
    results.add("anchors, simple jumper", anchors_of_jumper, options)
    results.add("simulation, difference from a monitor", check_simulation, options)
    for detector in SETTINGS:
        images = Scored(detector, options)
        usual = UsualRules(images, options)
        results.add(f"{detector}/scores", images.describe)
        for kind in CLEAN:
            results.add(f"{detector}/clean/{kind}", watch_clean, kind, images, options)
        results.add(f"{detector}/clean/fixed held-out scores", watch_fixed, images, options)
        for name, share in itertools.product(images.outliers, SHARES):
            key = f"{detector}/delays/{name} {share:g}"
            results.add(key, measure_delays, name, share, images, options)
        for order in ORDERS:
            key = f"{detector}/clean, usual rules/{order}"
            results.add(key, watch_usual, order, images, usual, options)
        for name, share in itertools.product(images.outliers, SHARES):
            key = f"{detector}/delays, usual rules/{name} {share:g}"
            results.add(key, measure_usual_delays, name, share, images, usual, options)
        key = f"{detector}/clean/shipped calibration, every image once"
        results.add(key, watch_shipped, images, options)
        for kind in CLEAN:
            key = f"{detector}/clean, thinned as measured/{kind}"
            results.add(key, watch_thinned, kind, images, options)


class Scored:
    """Images by row, inliers first: scores, and for inliers classes and clusters."""

    def __init__(self, detector: str, options: argparse.Namespace):
        self.names = SETTINGS[detector][1]
        path = options.cache / f"{detector}_{options.n}_{options.seed}.npz"
        if not path.exists():
            options.cache.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, allow_pickle=False, **compute_scores(detector, options))
        with np.load(path) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        self.classes, self.clusters = found["classes"], found["clusters"]
        self.shipped, self.components = found["shipped"], found["components"]
        parts = [found["inliers"], *(found[f"outliers_{name}"] for name in self.names)]
        self.scores, self.inliers = np.concatenate(parts), len(parts[0])
        ends = np.cumsum([len(part) for part in parts])
        self.outliers = {
            name: (int(start), int(end))
            for name, start, end in zip(self.names, ends[:-1], ends[1:], strict=True)
        }

    def draw_inliers(self, random: np.random.Generator, size: int) -> np.ndarray:
        return random.integers(self.inliers, size=size)

    def describe(self) -> dict[str, Any]:
        """What lies behind the streams: counts, hashes, and how many outliers a 5 % threshold finds."""
        from tfbnood.metrics import auroc

        inliers = self.scores[: self.inliers]
        found: dict[str, Any] = {"images": self.inliers, "sha256": array_sha256(self.scores)}
        for name, (start, end) in self.outliers.items():
            scores = self.scores[start:end]
            above = float((scores > np.quantile(inliers, 0.95)).mean())
            is_ood = np.arange(self.inliers + len(scores)) >= self.inliers
            area = auroc(is_ood, np.concatenate([inliers, scores]))
            found[name] = {"images": end - start, "auroc": area}
            found[name]["above_the_95_percent_quantile"] = above
        return found


def compute_scores(detector: str, options: argparse.Namespace) -> dict[str, np.ndarray]:
    import tfbnood
    from tfbnood.data.pools import outlier_set

    data, outliers = SETTINGS[detector]
    inliers, loaded = tfbnood.data.load(data), tfbnood.load(detector)
    order = np.random.default_rng(options.seed).permutation(len(inliers.test))[: options.n]
    sets = [inliers.test[order]]
    for name in outliers:
        others = outlier_set(name, inliers, seed=options.seed)
        sets.append(
            others[np.random.default_rng(options.seed).permutation(len(others))[: options.n]]
        )
    found = {
        "inliers": loaded.score(sets[0]),
        "classes": inliers.test_labels[order].astype(np.int64),
        "clusters": clusters(inliers.train, sets[0]),
        "shipped": loaded.calibration.null_of_images(1),
        "components": components(inliers.train, np.concatenate(sets)),
    }
    for name, images in zip(outliers, sets[1:], strict=True):
        found[f"outliers_{name}"] = loaded.score(images)
    return found


def clusters(reference: np.ndarray, images: np.ndarray, count: int = 10) -> np.ndarray:
    """Groups without labels: k-means of reference images' pixels."""
    from sklearn.cluster import KMeans

    means = KMeans(count, n_init=3, random_state=0).fit(_flat(reference[:5000]))
    return means.predict(_flat(images)).astype(np.int64)


def components(reference: np.ndarray, images: np.ndarray) -> np.ndarray:
    """What online MMD is given beside scores: principal components of reference images' pixels."""
    from sklearn.decomposition import PCA

    return PCA(COMPONENTS, random_state=0).fit(_flat(reference[:5000])).transform(_flat(images))


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1) / 255


ORDERS = ("mixed", "class order", "bursts of 10")
# By name: the order of images, and their groups.
CLEAN: dict[str, tuple[str, str | None]] = {
    "mixed": ("mixed", None),
    "class order": ("class order", None),
    "class order, groups are classes": ("class order", "classes"),
    "class order, groups are clusters": ("class order", "clusters"),
    "bursts of 10": ("bursts of 10", None),
}


def clean_rows(order: str, images: Scored, random: np.random.Generator, length: int) -> np.ndarray:
    """Rows of a stream without outliers."""
    rows = images.draw_inliers(random, length)
    if order == "class order":
        place = random.permutation(images.classes.max() + 1)
        rows = rows[np.argsort(place[images.classes[rows]], kind="stable")]
    return np.repeat(rows, 10)[:length] if order == "bursts of 10" else rows


def check_simulation(options: argparse.Namespace) -> dict[str, Any]:
    """Largest relative difference between a simulated monitor and a real one, with ties and with groups."""
    most = 0.0
    for seed in range(4):
        random = np.random.default_rng([options.seed, 8, seed])
        held_out, scores = random.normal(size=300).round(2), random.normal(size=900).round(2)
        groups = (random.integers(3, size=300), random.integers(3, size=900)) if seed % 2 else None
        first, then = (None, None) if groups is None else groups
        monitor = Monitor(held_out, NEVER, seed, thin=1, groups=first)
        seen = monitor.update(scores=scores, groups=then)
        for made, real in zip(
            evidence(p_values(held_out, scores, seed, groups)[None]),
            (seen.log_evidence, seen.log_martingale),
            strict=True,
        ):
            most = max(most, float(np.abs(made[0] / np.exp(real) - 1).max()))
    return {"relative": most}


def clean_stream(
    kind: str, images: Scored, stream: int, options: argparse.Namespace
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows of held-out images and of a stream without outliers, and the groups of all rows."""
    order, groups = CLEAN[kind]
    random = np.random.default_rng([options.seed, stream])
    held_out = images.draw_inliers(random, options.held_out)
    rows = clean_rows(order, images, random, options.length)
    return held_out, rows, None if groups is None else getattr(images, groups)


def watch_clean(kind: str, images: Scored, options: argparse.Namespace) -> dict[str, Any]:
    """Share of streams without outliers that raise an alarm; the promise is for images that are exchangeable."""
    most = []
    for start in range(0, options.streams, AT_ONCE):
        found = []
        for stream in range(start, min(start + AT_ONCE, options.streams)):
            held_out, rows, groups = clean_stream(kind, images, stream, options)
            within = None if groups is None else (groups[held_out], groups[rows])
            found.append(p_values(images.scores[held_out], images.scores[rows], stream, within))
        most.append([of.max(axis=1) for of in evidence(np.array(found))])
    return reached(*np.concatenate(most, axis=1), options)


def watch_thinned(kind: str, images: Scored, options: argparse.Namespace) -> dict[str, Any]:
    """The same with the real monitor, which measures how far apart to bet."""
    most = []
    for stream in range(options.few):
        held_out, rows, groups = clean_stream(kind, images, stream, options)
        first, then = (None, None) if groups is None else (groups[held_out], groups[rows])
        monitor = Monitor(images.scores[held_out], NEVER, seed=stream, groups=first)
        seen = monitor.update(scores=images.scores[rows], groups=then)
        # It raises no alarm before the first measurement.
        most.append([np.exp(of[63:].max()) for of in (seen.log_evidence, seen.log_martingale)])
    return reached(*np.transpose(most), options)


def reached(
    detector: np.ndarray, martingale: np.ndarray, options: argparse.Namespace
) -> dict[str, Any]:
    """Shares of streams whose largest values reach the thresholds, beside what is promised."""
    limits = (options.run_length, 10 * options.run_length)
    rules = {
        f"evidence ≥ {limit:g}": (detector >= limit, min(1.0, options.length / limit))
        for limit in limits
    }
    rules["martingale ≥ 20"] = (martingale >= 20, 0.05)
    return {
        rule: {**interval(int(hits.sum()), len(hits)), "promised": promised}
        for rule, (hits, promised) in rules.items()
    }


def watch_usual(
    order: str, images: Scored, usual: "UsualRules", options: argparse.Namespace
) -> dict[str, Any]:
    """Share of streams without outliers on which usual rules raise an alarm."""
    hits = usual.first_alarms(lambda random: clean_rows(order, images, random, options.length))
    return {rule: interval(int((of < options.length).sum()), len(of)) for rule, of in hits.items()}


def watch_fixed(images: Scored, options: argparse.Namespace) -> dict[str, Any]:
    """The trap: the same bets, on p-values that are uniform each, but not independent."""
    p_values = np.empty((options.streams, options.length))
    for stream in range(options.streams):
        random = np.random.default_rng([options.seed, stream])
        held_out = np.sort(images.scores[images.draw_inliers(random, options.held_out)])
        drawn = images.scores[images.draw_inliers(random, options.length)]
        left, right = (np.searchsorted(held_out, drawn, side) for side in ("left", "right"))
        ties = random.random(options.length) * (right - left + 1)
        p_values[stream] = (len(held_out) - right + ties) / (len(held_out) + 1)
    won = np.full((options.streams, len(LEVELS)), -np.inf)
    most = np.full(options.streams, -np.inf)
    for step in p_values.T:
        won = np.logaddexp(0, won) + log_bets(step)
        most = np.maximum(most, log_mean_exp(won))
    return {
        f"evidence ≥ {limit:g}": {
            **interval(int((most >= np.log(limit)).sum()), options.streams),
            "promised": min(1.0, options.length / limit),
        }
        for limit in (options.run_length, 10 * options.run_length)
    }


def watch_shipped(images: Scored, options: argparse.Namespace) -> dict[str, Any]:
    """Test images in random order, no image twice, after the calibration that ships with the detector."""
    alarms = 0
    for stream in range(options.few):
        order = np.random.default_rng([options.seed, stream]).permutation(images.inliers)
        monitor = Monitor(images.shipped, options.run_length, seed=stream)
        alarms += int(monitor.update(scores=images.scores[order]).alarm[-1])
    promised = min(1.0, images.inliers / options.run_length)
    return {**interval(alarms, options.few), "promised": promised}


def changed_rows(
    name: str, share: float, images: Scored, random: np.random.Generator
) -> np.ndarray:
    """Rows of a stream into which outliers are mixed from `CHANGE` on."""
    rows = images.draw_inliers(random, CHANGE + AFTER)
    strange = np.flatnonzero(random.random(AFTER) < share) + CHANGE
    rows[strange] = random.integers(*images.outliers[name], size=len(strange))
    return rows


def measure_delays(
    name: str, share: float, images: Scored, options: argparse.Namespace
) -> dict[str, Any]:
    """Images from the change to the alarm; how often the onset's interval is right; the share at the alarm."""
    found, among = [], []
    for stream in range(options.few):
        random = np.random.default_rng([options.seed, stream])
        held_out = images.scores[images.draw_inliers(random, options.held_out)]
        scores = images.scores[changed_rows(name, share, images, random)]
        found.append(p_values(held_out, scores, stream))
        among.append(conformal_p_values(scores, held_out))
    hits = first(evidence(np.array(found))[0] >= options.run_length)
    onsets, shares = [], []
    for hit, seen, fixed in zip(hits, found, among, strict=True):
        if CHANGE <= hit < CHANGE + AFTER:
            used = np.ones(hit + 1, bool)
            since = onset(seen[: hit + 1], used, 0)
            onsets.append(since.low <= CHANGE <= since.high)
            starts = likely_onsets(seen[: hit + 1], used)
            shares.append(estimated_share(fixed[: hit + 1], starts).value)
    return {
        **delay(hits),
        "onset_in_interval": interval(sum(onsets), len(onsets)) if onsets else None,
        "median_share": float(np.median(shares)) if shares else None,
    }


def measure_usual_delays(
    name: str, share: float, images: Scored, usual: "UsualRules", options: argparse.Namespace
) -> dict[str, Any]:
    """The delays of usual rules."""
    hits = usual.first_alarms(lambda random: changed_rows(name, share, images, random))
    return {rule: delay(of) for rule, of in hits.items()}


class UsualRules:
    """Index of the first alarm of usual rules, on several sets of held-out images: MMD is slow to set up."""

    def __init__(self, images: Scored, options: argparse.Namespace):
        self.images, self.options = images, options
        random = np.random.default_rng([options.seed, 10**6])
        self.held_out = random.integers(images.inliers, size=(HELD_OUT_SETS, options.held_out))

    @functools.cached_property
    def mmd(self) -> dict[str, list[OnlineMmd]]:
        """One for every set of held-out images, by name; made when needed."""
        random = np.random.default_rng([self.options.seed, 10**6 + 2])
        images, run_length = self.images, self.options.run_length
        found = {}
        for name, of in {
            "scores": images.scores,
            f"{COMPONENTS} components": images.components,
        }.items():
            kernel = gaussian_kernel(of, images.inliers)
            found[f"online MMD on {name}"] = [
                OnlineMmd(kernel, rows, run_length, BOOTSTRAPS, random) for rows in self.held_out
            ]
        return found

    def first_alarms(self, draw: Draw) -> dict[str, np.ndarray]:
        """By rule, `[streams]`; the length of a stream where there is no alarm."""
        random = np.random.default_rng([self.options.seed, 10**6 + 1])
        found: dict[str, list[np.ndarray]] = {name: [] for name in ("5 of 100", *self.mmd)}
        scores = self.images.scores
        for number, held_out in enumerate(self.held_out):
            rows = np.stack([draw(random) for _ in range(self.options.few // HELD_OUT_SETS)])
            counts = (conformal_p_values(scores[rows], scores[held_out]) <= 0.01).cumsum(axis=1)
            counts[:, 100:] = counts[:, 100:] - counts[:, :-100]
            found["5 of 100"].append(first(counts >= 5))
            for name, online in self.mmd.items():
                found[name].append(online[number].first_alarms(rows))
        return {name: np.concatenate(of) for name, of in found.items()}


if __name__ == "__main__":
    main()
