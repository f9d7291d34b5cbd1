"""Similar neighbouring images: how similar they are, and how many to skip between two bets."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["AutocorrelationWarning", "Spacing", "autocorrelation", "thinning"]

_LEAST, _ERRORS, _MOST_LAG = 0.1, 3.0, 256
_SURE_ERRORS = 4.5


class AutocorrelationWarning(UserWarning):
    """The scores of neighbouring images are correlated: the stream is thinned, and its guarantee is approximate."""


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

    Small means at most 0.1, or three standard errors `3 / √n` if few images are known. Lags go up to a quarter of the
    images, at most 256.

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


class Spacing:
    """Decides which images to bet on: those at least `distance` apart, as given or measured.

    A measurement only affects later images. A skipped bet is a bet of 1, so that on independent images every bound
    also holds with measured distances.

    Args:
        fixed: the distance; None to measure it.

    Attributes:
        distance: the current distance between bets.
        autocorrelation: of neighbouring p-values, as last measured.
        measured: whether the distance is given, or was measured at least once.

    Example:
        >>> spacing = Spacing(3)
        >>> [spacing.take(index) for index in range(5)]
        [True, False, False, True, False]
    """

    def __init__(self, fixed: int | None):
        self.fixed, self.distance = fixed, fixed or 1
        self.autocorrelation, self.measured = 0.0, fixed is not None
        self.last: int | None = None
        self.warned = False

    def take(self, index: int) -> bool:
        """Whether to bet on an image; if so, the next distance is counted from it."""
        due = self.last is None or index - self.last >= self.distance
        if due:
            self.last = index
        return due

    def measure(self, p_values: np.ndarray, *, stacklevel: int = 2) -> None:
        """Measures the distance on p-values of neighbours `[n]`.

        Warns once: if two measurements in a row exceed 1, and chance does not explain the autocorrelation. Skipping a
        few bets by chance costs little; a false warning costs trust.
        """
        before, self.measured = self.distance, True
        self.autocorrelation = float(autocorrelation(p_values, 1)[0])
        self.distance = thinning(p_values)
        sure = self.autocorrelation > _SURE_ERRORS / np.sqrt(len(p_values))
        if sure and min(before, self.distance) > 1 and not self.warned:
            self.warned = True
            warnings.warn(
                f"scores of neighbouring images are correlated ({self.autocorrelation:.2f}): bets are placed "
                f"{self.distance} images apart and the bound on false alarms is approximate; set thin= to the distance "
                "at which images are independent",
                AutocorrelationWarning,
                stacklevel=stacklevel + 1,
            )

    def get_state(self) -> dict[str, Any]:
        """Everything that later bets depend on, JSON-safe."""
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Spacing":
        """A spacing that continues from a state."""
        spacing = cls(state["fixed"])
        for name in vars(spacing):
            setattr(spacing, name, state[name])
        return spacing
