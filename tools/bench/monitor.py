"""False alarms and delays of `tfbnood.Monitor` on streams of real images' scores, beside two usual rules.

    .venv/bin/python tools/bench/monitor.py --cache runs/bench_monitor --out results/bench_monitor.json

Scores are computed once, with detectors that ship, and kept in `--cache`. A stream and the held-out scores it is
compared with are independent draws, with replacement, from the scores of one set of test images: nothing has changed
until outliers are mixed in. The rules beside it, on the same scores: alibi-detect's online MMD (Gaussian kernel, median
width, thresholds by bootstrap for the same expected run time), and "5 alarms (p ≤ 1 %) in the last 100 images".
"""

import argparse
import pathlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import beta

from tfbnood._core.files import atomic_path, write_json
from tfbnood._core.provenance import array_sha256, machine, versions
from tfbnood.calibration.conformal import conformal_p_values
from tfbnood.monitor import AutocorrelationWarning, Monitor
from tfbnood.monitor.bets import LEVELS, log_bets, log_mean_exp

SETTINGS = {
    "fashion_mnist_vae": ("fashion_mnist", ("mnist", "rotation")),
    "cifar10_realnvp": ("cifar10", ("svhn", "lsun")),
}
SHARES = (1.0, 0.25, 0.1, 0.05, 0.01)
WINDOW = 32
# MMD's thresholds are slow to find: its streams share so many sets of held-out scores.
HELD_OUT_SETS, BOOTSTRAPS = 10, 50_000
CHANGE, AFTER = 500, 3000
NEVER = 1e300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="folder for scores")
    parser.add_argument("--n", type=int, default=3000, help="images per set (default: 3000)")
    parser.add_argument("--streams", type=int, default=1000, help="clean streams (default: 1000)")
    parser.add_argument("--few", type=int, default=200, help="streams of other kinds, and delays")
    parser.add_argument("--length", type=int, default=5000, help="images per clean stream")
    parser.add_argument("--held-out", type=int, default=1000, help="scores to compare with")
    parser.add_argument("--run-length", type=float, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="result file, JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore", AutocorrelationWarning)
    began = time.perf_counter()
    found: dict[str, Any] = {}
    for detector in SETTINGS:
        scores = load_scores(detector, options)
        usual = UsualRules(scores["inliers"], options)
        found[detector] = {
            "scores_sha256": {name: array_sha256(of) for name, of in scores.items()},
            "clean": clean(scores, usual, options),
            "delays": delays(scores, detector, usual, options),
        }
    if options.out:
        settings = {name: of for name, of in vars(options).items() if name not in ("cache", "out")}
        settings |= {"window": WINDOW, "bootstraps": BOOTSTRAPS, "change": CHANGE, "after": AFTER}
        result = {"settings": settings, "detectors": found, "seconds": time.perf_counter() - began}
        write_json(options.out, {**result, "versions": versions(), "machine": machine()})


def load_scores(detector: str, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """By name, scores of the inliers, their classes and clusters, the shipped calibration, and outliers."""
    path = options.cache / f"{detector}_{options.n}_{options.seed}.npz"
    if not path.exists():
        options.cache.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            np.savez(temporary, allow_pickle=False, **compute_scores(detector, options))
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def compute_scores(detector: str, options: argparse.Namespace) -> dict[str, np.ndarray]:
    import tfbnood
    from tfbnood.data.pools import outlier_set

    data, outliers = SETTINGS[detector]
    inliers, loaded = tfbnood.data.load(data), tfbnood.load(detector)
    order = np.random.default_rng(options.seed).permutation(len(inliers.test))[: options.n]
    images = inliers.test[order]
    found = {
        "inliers": loaded.score(images),
        "classes": inliers.test_labels[order].astype(np.int64),
        "clusters": clusters(inliers.train, images),
        "shipped": loaded.calibration.null_of_images(1),
    }
    for name in outliers:
        others = outlier_set(name, inliers, seed=options.seed)
        rows = np.random.default_rng(options.seed).permutation(len(others))[: options.n]
        found[f"outliers_{name}"] = loaded.score(others[rows])
    return found


def clusters(reference: np.ndarray, images: np.ndarray, count: int = 10) -> np.ndarray:
    """Groups without labels: k-means of reference images' pixels."""
    from sklearn.cluster import KMeans

    flat = reference[:5000].reshape(len(reference[:5000]), -1) / 255
    means = KMeans(count, n_init=3, random_state=0).fit(flat)
    return means.predict(images.reshape(len(images), -1) / 255).astype(np.int64)


def clean(
    scores: dict[str, np.ndarray], usual: "UsualRules", options: argparse.Namespace
) -> dict[str, Any]:
    """Share of streams without outliers that raise an alarm, by order of the images and way to watch."""
    inliers, classes = scores["inliers"], scores["classes"]
    size, length = len(inliers), options.length

    def mixed(random: np.random.Generator) -> np.ndarray:
        return random.integers(size, size=length)

    def in_class_order(random: np.random.Generator) -> np.ndarray:
        rows = mixed(random)
        place = random.permutation(classes.max() + 1)
        return rows[np.argsort(place[classes[rows]], kind="stable")]

    def bursts(random: np.random.Generator) -> np.ndarray:
        return np.repeat(mixed(random), 10)[:length]

    kinds: dict[str, tuple[Callable, int, dict[str, Any]]] = {
        "mixed": (mixed, options.streams, {}),
        "class order": (in_class_order, options.few, {}),
        "class order, not thinned": (in_class_order, options.few, {"thin": 1}),
        "class order, groups are classes": (in_class_order, options.few, {"groups": classes}),
        "class order, groups are clusters": (
            in_class_order,
            options.few,
            {"groups": scores["clusters"]},
        ),
        "bursts of 10": (bursts, options.few, {}),
        "bursts of 10, not thinned": (bursts, options.few, {"thin": 1}),
    }
    found = {}
    for kind, (order, streams, how) in kinds.items():
        reached = np.array(
            [watch_clean(inliers, order, how, stream, options) for stream in range(streams)]
        )
        promised = {
            f"evidence ≥ {options.run_length:g}": min(1.0, length / options.run_length),
            f"evidence ≥ {10 * options.run_length:g}": length / (10 * options.run_length),
            "martingale ≥ 20": 0.05,
        }
        found[kind] = {
            rule: {**interval(int(reached[:, place].sum()), streams), "promised": share}
            for place, (rule, share) in enumerate(promised.items())
        }
        for rule, values in found[kind].items():
            print(f"clean, {kind}: {rule}: {values['share']:.3f} of {streams}", flush=True)
    for kind, order in {
        "mixed": mixed,
        "class order": in_class_order,
        "bursts of 10": bursts,
    }.items():

        def draw(random: np.random.Generator, order: Callable = order) -> np.ndarray:
            return inliers[order(random)]

        for rule, hits in usual.first_alarms(draw).items():
            found[f"{kind}: {rule}"] = interval(int((hits < length).sum()), len(hits))
            print(f"clean, {kind}: {rule}: {found[f'{kind}: {rule}']['share']:.3f}", flush=True)
    found["mixed, bets on p-values among held-out scores alone"] = watch_fixed(inliers, options)
    found["shipped calibration, every image once"] = watch_shipped(scores, options)
    return found


def watch_clean(
    inliers: np.ndarray,
    order: Callable,
    how: dict[str, Any],
    stream: int,
    options: argparse.Namespace,
) -> tuple[bool, bool, bool]:
    """Whether one clean stream reaches the run length, ten times it, and the martingale 20."""
    random = np.random.default_rng([options.seed, stream])
    held_out = random.integers(len(inliers), size=options.held_out)
    rows = order(random)
    groups = how.get("groups")
    monitor = Monitor(
        inliers[held_out],
        NEVER,  # It goes on after what would be an alarm.
        seed=stream,
        thin=how.get("thin"),
        groups=None if groups is None else groups[held_out],
    )
    seen = monitor.update(
        scores=inliers[rows], groups=None if groups is None else groups[rows].tolist()
    )
    # As the monitor, which waits for the first measurement.
    start = 0 if how.get("thin") else 63
    evidence = seen.log_evidence[start:].max()
    limit = np.log(options.run_length)
    return (
        bool(evidence >= limit),
        bool(evidence >= limit + np.log(10)),
        bool(seen.log_martingale[start:].max() >= np.log(20)),
    )


def watch_fixed(inliers: np.ndarray, options: argparse.Namespace) -> dict[str, Any]:
    """The trap: the same bets, on p-values that are uniform each, but not independent."""
    p_values = np.empty((options.streams, options.length))
    for stream in range(options.streams):
        random = np.random.default_rng([options.seed, stream])
        held_out = np.sort(inliers[random.integers(len(inliers), size=options.held_out)])
        drawn = inliers[random.integers(len(inliers), size=options.length)]
        left, right = (np.searchsorted(held_out, drawn, side) for side in ("left", "right"))
        ties = random.random(options.length) * (right - left + 1)
        p_values[stream] = (len(held_out) - right + ties) / (len(held_out) + 1)
    won = np.full((options.streams, len(LEVELS)), -np.inf)
    most = np.full(options.streams, -np.inf)
    for step in p_values.T:
        won = np.logaddexp(0, won) + log_bets(step)
        most = np.maximum(most, log_mean_exp(won))
    found: dict[str, Any] = {}
    for limit in (options.run_length, 10 * options.run_length):
        shares = interval(int((most >= np.log(limit)).sum()), options.streams)
        found[f"evidence ≥ {limit:g}"] = {**shares, "promised": min(1.0, options.length / limit)}
        print(
            f"clean, fixed held-out scores: evidence ≥ {limit:g}: {shares['share']:.3f}", flush=True
        )
    return found


def watch_shipped(scores: dict[str, np.ndarray], options: argparse.Namespace) -> dict[str, Any]:
    """Test images in random order, no image twice, after the calibration that ships with the detector."""
    alarms = 0
    for stream in range(options.few):
        order = np.random.default_rng([options.seed, stream]).permutation(len(scores["inliers"]))
        monitor = Monitor(scores["shipped"], options.run_length, seed=stream)
        alarms += int(monitor.update(scores=scores["inliers"][order]).alarm[-1])
    promised = min(1.0, len(scores["inliers"]) / options.run_length)
    found = {**interval(alarms, options.few), "promised": promised}
    print(f"clean, shipped calibration: {found['share']:.3f}", flush=True)
    return found


def delays(
    scores: dict[str, np.ndarray], detector: str, usual: "UsualRules", options: argparse.Namespace
) -> dict[str, Any]:
    """Images from the first outlier to the alarm, by outliers, their share and rule."""
    inliers = scores["inliers"]
    found: dict[str, Any] = {}
    for name in SETTINGS[detector][1]:
        outliers = scores[f"outliers_{name}"]
        for share in SHARES:

            def draw(
                random: np.random.Generator, share: float = share, outliers: np.ndarray = outliers
            ) -> np.ndarray:
                drawn = inliers[random.integers(len(inliers), size=CHANGE + AFTER)]
                strange = np.flatnonzero(random.random(AFTER) < share) + CHANGE
                drawn[strange] = outliers[random.integers(len(outliers), size=len(strange))]
                return drawn

            hits: list[int] = []
            onsets: list[bool] = []
            shares: list[float] = []
            for stream in range(options.few):
                random = np.random.default_rng([options.seed, stream])
                held_out = inliers[random.integers(len(inliers), size=options.held_out)]
                monitor = Monitor(held_out, options.run_length, seed=stream)
                drawn = draw(random)
                for start in range(0, len(drawn), 50):
                    monitor.update(scores=drawn[start : start + 50])
                    if monitor.alarm:
                        break
                hits.append(len(drawn) if monitor.alarm_index is None else monitor.alarm_index)
                since, among = monitor.since, monitor.share
                if since is not None and among is not None and hits[-1] >= CHANGE:
                    onsets.append(since.low <= CHANGE <= since.high)
                    shares.append(among.value)
            key = f"{name} {share:g}"
            found[key] = {"monitor": delay(np.array(hits))}
            found[key]["onset_in_interval"] = float(np.mean(onsets)) if onsets else None
            found[key]["median_share"] = float(np.median(shares)) if shares else None
            for rule, of in usual.first_alarms(draw).items():
                found[key][rule] = delay(of)
            line = "; ".join(
                f"{rule} {of['median']} ({of['found']:.2f} found)"
                for rule, of in found[key].items()
                if isinstance(of, dict)
            )
            print(f"{detector}, {key}: {line}", flush=True)
    return found


def delay(hits: np.ndarray) -> dict[str, Any]:
    """Of streams without an alarm before the change: share found, median and 90 % quantile of the delay."""
    late = np.where(hits < CHANGE + AFTER, hits - CHANGE + 1.0, np.inf)[hits >= CHANGE]
    quantiles = np.quantile(late, (0.5, 0.9), method="higher")
    median, most = (int(one) if np.isfinite(one) else None for one in quantiles)
    early = int((hits < CHANGE).sum())
    share = float(np.isfinite(late).mean())
    return {"median": median, "quantile_90": most, "found": share, "early": early, "of": len(hits)}


class UsualRules:
    """Index of the first alarm of usual rules, on several sets of held-out scores: MMD is slow to set up."""

    def __init__(self, inliers: np.ndarray, options: argparse.Namespace):
        self.inliers, self.options = inliers, options
        random = np.random.default_rng([options.seed, 10**6])
        drawn = random.integers(len(inliers), size=(HELD_OUT_SETS, options.held_out))
        self.held_out = inliers[drawn]
        self.mmd = [OnlineMmd(one, options.run_length, random) for one in self.held_out]

    def first_alarms(
        self, draw: Callable[[np.random.Generator], np.ndarray]
    ) -> dict[str, np.ndarray]:
        """By rule, `[streams]`; the length of a stream where there is no alarm."""
        random = np.random.default_rng([self.options.seed, 10**6 + 1])
        five, mmd = [], []
        for held_out, online in zip(self.held_out, self.mmd, strict=True):
            streams = np.stack([draw(random) for _ in range(self.options.few // HELD_OUT_SETS)])
            counts = (conformal_p_values(streams, held_out) <= 0.01).cumsum(axis=1)
            counts[:, 100:] = counts[:, 100:] - counts[:, :-100]
            five.append(first(counts >= 5))
            mmd.append(online.first_alarms(streams))
        return {"5 of 100": np.concatenate(five), "online MMD": np.concatenate(mmd)}


class OnlineMmd:
    """What alibi-detect's MMDDriftOnline does: MMD² between the last images and the reference, above a threshold.

    `2 · WINDOW` images left out of the reference stand for a stream. The threshold of step w is the quantile
    `1 − 1/run_length` of the bootstraps that raised no alarm before, and that of the last step stays.
    """

    def __init__(self, reference: np.ndarray, run_length: float, random: np.random.Generator):
        differences = np.abs(reference[:, None] - reference)
        self.width = np.median(differences[differences > 0])
        size = len(reference)
        full = self.kernel(reference[:, None], reference)
        np.fill_diagonal(full, 0)
        parts = [self._bootstrap(full, random) for _ in range(BOOTSTRAPS // 500)]
        null, self.thresholds = np.concatenate(parts), []
        for step in range(WINDOW):
            self.thresholds.append(np.quantile(null[:, step], 1 - 1 / run_length))
            null = null[null[:, step] <= self.thresholds[-1]]
        rest = size - 2 * WINDOW
        self.subset = reference[random.permutation(size)[:rest]]
        inner = self.kernel(self.subset[:, None], self.subset).sum() - rest
        self.constant = inner / (rest * (rest - 1))

    def kernel(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * np.square((one - other) / self.width))

    @staticmethod
    def _bootstrap(full: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """MMD² of 500 random streams, `[500, WINDOW]`."""
        size, rest = len(full), len(full) - 2 * WINDOW
        chosen = random.random((500, size)).argpartition(2 * WINDOW)[:, : 2 * WINDOW]
        block = full[chosen[:, :, None], chosen[:, None, :]]
        cross = full.sum(axis=0)[chosen] - block.sum(axis=2)
        inner = full.sum() - block.sum(axis=(1, 2)) - 2 * cross.sum(axis=1)
        sums = np.pad(block, ((0, 0), (1, 0), (1, 0))).cumsum(axis=1).cumsum(axis=2)
        low = np.arange(WINDOW)
        high = low + WINDOW
        within = sums[:, high, high] - sums[:, low, high] - sums[:, high, low] + sums[:, low, low]
        crossed = np.pad(cross, ((0, 0), (1, 0))).cumsum(axis=1)
        between = (crossed[:, high] - crossed[:, low]) / (rest * WINDOW)
        return inner[:, None] / (rest * (rest - 1)) + within / (WINDOW * (WINDOW - 1)) - 2 * between

    def first_alarms(self, streams: np.ndarray) -> np.ndarray:
        values = np.unique(streams)
        pieces = np.array_split(values, 8)
        table = np.concatenate(
            [self.kernel(some[:, None], self.subset).mean(axis=1) for some in pieces]
        )
        crossed = np.pad(table[np.searchsorted(values, streams)], ((0, 0), (1, 0))).cumsum(axis=1)
        count, length = streams.shape
        hits, recent, inside = np.full(count, length), np.zeros((count, 0)), np.zeros(count)
        for t in range(length):
            if recent.shape[1] == WINDOW:
                inside -= 2 * self.kernel(recent[:, :1], recent[:, 1:]).sum(axis=1)
                recent = recent[:, 1:]
            new = streams[:, t : t + 1]
            inside += 2 * self.kernel(new, recent).sum(axis=1)
            recent = np.concatenate([recent, new], axis=1)
            step = t + 1 - WINDOW
            if step < 0:
                continue
            between = (crossed[:, t + 1] - crossed[:, step]) / WINDOW
            mmd = self.constant + inside / (WINDOW * (WINDOW - 1)) - 2 * between
            hit = (mmd > self.thresholds[min(step, WINDOW - 1)]) & (hits == length)
            hits[hit] = t
        return hits


def first(hits: np.ndarray) -> np.ndarray:
    """Index of the first True of every row, the length of a row where there is none."""
    return np.where(hits.any(axis=1), hits.argmax(axis=1), hits.shape[1])


def interval(hits: int, of: int) -> dict[str, Any]:
    """A share with its exact 95 % interval (Clopper–Pearson)."""
    low = float(beta.ppf(0.025, hits, of - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, of - hits)) if hits < of else 1.0
    return {"share": hits / of, "low": low, "high": high, "hits": hits, "of": of}


if __name__ == "__main__":
    main()
