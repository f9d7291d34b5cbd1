"""Neighbouring images that resemble each other: how much, and how many to leave out between two bets."""

import numpy as np

__all__ = ["AutocorrelationWarning", "autocorrelation", "thinning"]

_LEAST, _ERRORS, _MOST_LAG = 0.1, 3.0, 256


class AutocorrelationWarning(UserWarning):
    """The scores of neighbouring images are correlated: the stream is thinned, its guarantee is approximate."""


def autocorrelation(values: np.ndarray, lags: int) -> np.ndarray:
    """`r_h = Σ_t (x_t − m)(x_{t+h} − m) / Σ_t (x_t − m)²` for h = 1 … lags.

    Example:
        >>> autocorrelation(np.array([1.0, -1.0, 1.0, -1.0]), 2)
        array([-0.75,  0.5 ])
    """
    centred = values - values.mean()
    size = 1 << (len(values) + lags).bit_length()
    spectrum = np.fft.rfft(centred, size)
    products = np.fft.irfft(spectrum * spectrum.conj(), size)[: lags + 1]
    return products[1:] / max(products[0], np.finfo(float).tiny)


def thinning(values: np.ndarray) -> int:
    """The distance between images to bet on: the first lag whose autocorrelation is small.

    Small is at most 0.1, or three standard errors `3 / √n` where few images are known. Lags go up to a quarter of the
    images and 256.

    Example:
        >>> random = np.random.default_rng(0)
        >>> thinning(random.random(1000)), thinning(np.repeat(random.random(100), 10))
        (1, 9)
    """
    lags = min(_MOST_LAG, len(values) // 4)
    if lags < 1:
        return 1
    small = max(_LEAST, _ERRORS / np.sqrt(len(values)))
    found = np.flatnonzero(autocorrelation(values, lags) <= small)
    return int(found[0]) + 1 if len(found) else lags
