"""Online MMD as in alibi-detect, for `tools/bench/monitor.py`: on rows of one matrix of kernel values."""

import numpy as np

__all__ = ["WINDOW", "OnlineMmd", "gaussian_kernel"]

WINDOW = 32
_AT_ONCE = 500


def gaussian_kernel(features: np.ndarray, inliers: int) -> np.ndarray:
    """`exp(−d²/2s²)` of all pairs of rows, float32 `[n, n]`; s is the median distance of the first `inliers` rows."""
    features = features.reshape(len(features), -1).astype(np.float64)
    squares = np.square(features).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * features @ features.T, 0)
    among = distances[:inliers, :inliers]
    return np.exp(distances / (-2 * np.median(among[among > 0]))).astype(np.float32)


class OnlineMmd:
    """What alibi-detect's MMDDriftOnline does: MMD² between the last images and the reference, above a threshold.

    `2 · WINDOW` images left out of the reference stand for a stream. The threshold of step w is the quantile
    `1 − 1/run_length` of the bootstraps that raised no alarm before, and that of the last step stays.

    Args:
        kernel: of all images.
        reference: rows of the reference images.
        run_length: expected run time.
        bootstraps: simulated streams; a multiple of 500.
        random: generator.
    """

    def __init__(
        self,
        kernel: np.ndarray,
        reference: np.ndarray,
        run_length: float,
        bootstraps: int,
        random: np.random.Generator,
    ):
        self.kernel = kernel
        full = kernel[np.ix_(reference, reference)].astype(np.float64)
        np.fill_diagonal(full, 0)
        null = np.concatenate([_bootstrap(full, random) for _ in range(0, bootstraps, _AT_ONCE)])
        self.thresholds = []
        for step in range(WINDOW):
            self.thresholds.append(np.quantile(null[:, step], 1 - 1 / run_length))
            null = null[null[:, step] <= self.thresholds[-1]]
        rest = len(reference) - 2 * WINDOW
        kept = random.permutation(len(reference))[:rest]
        self.constant = full[np.ix_(kept, kept)].sum() / (rest * (rest - 1))
        self.to_reference = kernel[:, reference[kept]].mean(axis=1, dtype=np.float64)

    def first_alarms(self, streams: np.ndarray) -> np.ndarray:
        """Index of the first alarm of every stream of rows `[streams, length]`; the length where there is none."""
        count, length = streams.shape
        crossed = np.pad(self.to_reference[streams], ((0, 0), (1, 0))).cumsum(axis=1)
        hits, inside = np.full(count, length), np.zeros(count)
        for t in range(length):
            recent = streams[:, max(0, t - WINDOW + 1) : t]
            if t >= WINDOW:
                left = streams[:, t - WINDOW, None]
                inside -= 2 * self.kernel[left, recent].sum(axis=1, dtype=np.float64)
            inside += 2 * self.kernel[streams[:, t, None], recent].sum(axis=1, dtype=np.float64)
            step = t + 1 - WINDOW
            if step < 0:
                continue
            between = (crossed[:, t + 1] - crossed[:, step]) / WINDOW
            mmd = self.constant + inside / (WINDOW * (WINDOW - 1)) - 2 * between
            hits[(mmd > self.thresholds[min(step, WINDOW - 1)]) & (hits == length)] = t
            if (hits < length).all():
                break
        return hits


def _bootstrap(full: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """MMD² of random streams, `[500, WINDOW]`."""
    size, rest = len(full), len(full) - 2 * WINDOW
    chosen = random.random((_AT_ONCE, size)).argpartition(2 * WINDOW)[:, : 2 * WINDOW]
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
