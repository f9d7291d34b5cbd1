"""Since when, and how many: estimates with intervals, from the same model as the bets."""

import dataclasses

import numpy as np

from tfbnood.monitor.bets import log_bets, log_mean_exp

__all__ = ["Estimate", "onset", "share"]

_SHARES = np.linspace(0, 0.995, 200)
_LEVELS = np.geomspace(0.001, 0.5, 28)
_SHIFTS, _SPREADS = (
    of.ravel() for of in np.meshgrid(np.arange(0.75, 4.3, 0.25), np.array([0.4, 0.6, 0.8, 1.0]))
)
_BINS = 128


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
    """The index since which images are strange: the likeliest one, and the central 95 % of all likely ones.

    `P(onset = j) ∝ mean_k L_j^t(k)`: the summands of the e-detector are the posterior of the onset when every index is
    as likely beforehand. Indices are whole numbers.

    Args:
        p_values: `[n]`, of the stream up to now.
        used: bool `[n]`, which of them were bet on.
        first: index of the first of them.

    Example:
        >>> p = np.concatenate([np.linspace(0.05, 1, 50), np.full(20, 0.001)])
        >>> onset(p, np.ones(70, bool), 1000)
        Estimate(value=1050, low=1049, high=1050)
    """
    won = np.where(used[:, None], log_bets(p_values), 0.0)
    log_posterior = log_mean_exp(won[::-1].cumsum(axis=0)[::-1])
    posterior = np.exp(log_posterior - log_posterior.max())
    low, high = _quantiles(posterior)
    return Estimate(first + int(posterior.argmax()), first + low, first + high)


def share(p_values: np.ndarray) -> Estimate:
    """The share of outliers: posterior mean and central 95 %.

    The model: a share ε of the images has p-values that are uniform below q, or normal scores with mean μ and standard
    deviation σ; the others have uniform p-values. All ε in [0, 1) are as likely beforehand, as are q from 0.001 to 0.5
    on a logarithmic scale, μ from 0.75 to 4.25 and σ from 0.4 to 1. The interval is that of the model: for other kinds
    of outliers it may be too short, and outliers that look like inliers do not count.

    Args:
        p_values: `[n]`, among calibration scores alone.

    Example:
        >>> found = share(np.concatenate([np.linspace(0.01, 1, 75), np.full(25, 0.0005)]))
        >>> round(found.value, 2), 0.15 < found.low < 0.25 < found.high < 0.36
        (0.25, True)
    """
    from scipy.special import ndtri

    shares = _SHARES[:, None]
    inside = (p_values[:, None] <= _LEVELS).sum(axis=0)
    below = inside * np.log(1 - shares + shares / _LEVELS)
    below += (len(p_values) - inside) * np.log(1 - shares)
    # In bins: thousands of images take no longer than a hundred.
    counts, edges = np.histogram(-ndtri(np.clip(p_values, 1e-9, 1 - 1e-9)), bins=_BINS)
    normal = (edges[1:] + edges[:-1])[counts > 0] / 2
    shifts, spreads = _SHIFTS[:, None], _SPREADS[:, None]
    ratio = np.exp((normal**2 - ((normal - shifts) / spreads) ** 2) / 2) / spreads
    shifted = np.log(1 - shares[..., None] + shares[..., None] * ratio) @ counts[counts > 0]
    log_likelihood = np.concatenate([below, shifted], axis=1)
    posterior = np.exp(log_likelihood - log_likelihood.max()).sum(axis=1)
    posterior /= posterior.sum()
    low, high = _quantiles(posterior)
    return Estimate(float(posterior @ _SHARES), float(_SHARES[low]), float(_SHARES[high]))


def _quantiles(posterior: np.ndarray) -> tuple[int, int]:
    below = posterior.cumsum() / posterior.sum()
    low, high = np.searchsorted(below, (0.025, 0.975))
    return int(low), int(min(high, len(below) - 1))
