"""Since when, and how many: estimates with intervals, from the same model as the bets."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfbnood.monitor.bets import log_bets, log_mean_exp

__all__ = ["Estimate", "likely_onsets", "onset", "share"]

_SHARES = np.linspace(0, 0.995, 200)
_LEVELS = np.geomspace(0.001, 0.5, 28)
_SHIFTS, _SPREADS = (
    of.ravel() for of in np.meshgrid(np.arange(0.75, 4.3, 0.25), np.array([0.4, 0.6, 0.8, 1.0]))
)
_BINS = 128
_ONSETS = 16


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval.

    Example:
        >>> Estimate(0.25, 0.2, 0.31)
        Estimate(value=0.25, low=0.2, high=0.31)
    """

    value: float
    low: float
    high: float


def onset(p_values: np.ndarray, used: np.ndarray, first: int) -> Estimate:
    """The index since which images have been strange: the likeliest one, and the central 95 % interval.

    `P(onset = j) ∝ mean_k L_j^t(k)`: the summands of the e-detector are the posterior of the onset if all indices are
    equally likely a priori. Indices are integers.

    Args:
        p_values: `[n]`, of the stream up to now.
        used: bool `[n]`, which of them were bet on.
        first: index of the first of them.

    Example:
        >>> p = np.concatenate([np.linspace(0.05, 1, 50), np.full(20, 0.001)])
        >>> onset(p, np.ones(70, bool), 1000)
        Estimate(value=1050, low=1049, high=1050)
    """
    posterior = _onset_posterior(p_values, used)
    low, high = _quantiles(posterior, (0.025, 0.975))
    return Estimate(first + int(posterior.argmax()), first + low, first + high)


def likely_onsets(p_values: np.ndarray, used: np.ndarray) -> list[int]:
    """16 places `[n]` of the onset, each as likely as the others: quantiles of what `onset` gives the interval of.

    Example:
        >>> p = np.concatenate([np.linspace(0.05, 1, 50), np.full(20, 0.001)])
        >>> sorted(set(likely_onsets(p, np.ones(70, bool))))
        [49, 50]
    """
    levels = (np.arange(_ONSETS) + 0.5) / _ONSETS
    return _quantiles(_onset_posterior(p_values, used), levels)


def _onset_posterior(p_values: np.ndarray, used: np.ndarray) -> np.ndarray:
    won = np.where(used[:, None], log_bets(p_values), 0.0)
    log_posterior = log_mean_exp(won[::-1].cumsum(axis=0)[::-1])
    return np.exp(log_posterior - log_posterior.max())


def share(p_values: np.ndarray, starts: Sequence[int] = (0,)) -> Estimate:
    """The share of outliers: posterior mean and central 95 %.

    The model: a share ε of the images has p-values that are uniform below q, or normal scores with mean μ and standard
    deviation σ; the others have uniform p-values. A priori, all ε in [0, 1) are equally likely, as are q from 0.001 to
    0.5 on a logarithmic scale, μ from 0.75 to 4.25 and σ from 0.4 to 1. The interval is that of the model: for other
    kinds of outliers it may be too short, and outliers that look like inliers do not count.

    Args:
        p_values: `[n]`, among calibration scores alone.
        starts: places from one of which on they are meant, each as likely as the others: the likeliest onset alone is
            where outliers happen to be dense, and would make their share too high.

    Example:
        >>> found = share(np.concatenate([np.linspace(0.01, 1, 75), np.full(25, 0.0005)]))
        >>> round(found.value, 2), 0.15 < found.low < 0.25 < found.high < 0.36
        (0.25, True)
    """
    from scipy.special import ndtri

    p_values, firsts = p_values[min(starts) :], np.subtract(starts, min(starts))
    shares = _SHARES[:, None]
    since = np.arange(len(p_values)) >= firsts[:, None]
    inside = since @ (p_values[:, None] <= _LEVELS).astype(float)
    outside = since.sum(axis=1)[:, None] - inside
    below = np.log(1 - shares + shares / _LEVELS)[:, None] * inside
    below += np.log(1 - shares)[:, None] * outside
    # In bins: thousands of images take no longer than a hundred.
    scores = -ndtri(np.clip(p_values, 1e-9, 1 - 1e-9))
    edges = np.histogram_bin_edges(scores, bins=_BINS)
    counts = np.array([np.histogram(scores[first:], edges)[0] for first in firsts])
    normal = (edges[1:] + edges[:-1])[counts.any(axis=0)] / 2
    shifts, spreads = _SHIFTS[:, None], _SPREADS[:, None]
    ratio = np.exp((normal**2 - ((normal - shifts) / spreads) ** 2) / 2) / spreads
    won = np.log(1 - shares[..., None] + shares[..., None] * ratio)
    shifted = np.moveaxis(won @ counts[:, counts.any(axis=0)].T, 2, 1)
    log_likelihood = np.concatenate([below, shifted], axis=2)  # shares, starts, kinds of outliers
    by_start = np.exp(log_likelihood - log_likelihood.max(axis=(0, 2), keepdims=True)).sum(axis=2)
    posterior = (by_start / by_start.sum(axis=0)).mean(axis=1)
    low, high = _quantiles(posterior, (0.025, 0.975))
    return Estimate(float(posterior @ _SHARES), float(_SHARES[low]), float(_SHARES[high]))


def _quantiles(posterior: np.ndarray, levels: Sequence[float] | np.ndarray) -> list[int]:
    below = posterior.cumsum() / posterior.sum()
    return np.minimum(np.searchsorted(below, levels), len(below) - 1).tolist()
