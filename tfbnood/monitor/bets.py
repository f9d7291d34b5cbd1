"""Bets against "the p-values are uniform": an e-detector for the alarm, a CUSUM for the onset and a test martingale.

Each bet multiplies its stake by `b(p) = 1 − ε + (ε/q)·1{p ≤ q}`, the likelihood ratio of "a share ε of the images are
outliers, with p-values uniform below q". Its mean under uniform p-values is 1. No single (ε, q) suits all outliers, so
equal stakes are placed on all pairs of a grid. A bet never grows with p: what holds for uniform p-values holds for
larger ones.

Notation: `L_j^t(k) = b_k(p_j) ⋯ b_k(p_t)`, averages over the K pairs k.

- **e-detector** (Shiryaev–Roberts): `M_t = mean_k Σ_{j≤t} L_j^t(k)`. `M_t − t` is a martingale, so `E[M_N] ≤ E[N]` at
  every stopping time N. The first N with `M_N ≥ c` therefore has `E[N] ≥ c`, and `P(N ≤ m) ≤ m / c` for every m, since
  `c·P(N ≤ m) ≤ E[M_min(N, m)] ≤ m`.
- **CUSUM**: `C_t = mean_k max_{j≤t} L_j^t(k) ≤ M_t`. It alarms later than M at the same c; the j of its maximum is the
  likeliest onset.
- **Test martingale**: `S_t = mean_k Σ_{j≤t} π_j L_j^t(k) + Σ_{j>t} π_j` with `Σ π_j = 1`. It starts at 1, and by Ville
  `P(S_t ≥ c for any t) ≤ 1/c`, forever.

References: Shin, Ramdas & Rinaldo, E-detectors, NEJSDS 2024, arXiv:2203.03532; Vovk, Nouretdinov & Gammerman, Validity
and efficiency of the conformal CUSUM procedure 2024, arXiv:2412.03464; Ville 1939.
"""

import itertools
import math
from collections.abc import Mapping

import numpy as np

__all__ = ["LEVELS", "SHARES", "Evidence", "log_bets", "log_mean_exp", "unspent"]

_PAIRS = np.array(
    list(itertools.product((0.01, 0.03, 0.1, 0.3, 0.9), (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)))
)
SHARES, LEVELS = _PAIRS[:, 0].copy(), _PAIRS[:, 1].copy()
"""ε and q of every pair."""
_INSIDE, _OUTSIDE = np.log(1 - SHARES + SHARES / LEVELS), np.log(1 - SHARES)


def log_bets(p_values: np.ndarray | float) -> np.ndarray:
    """`log b(p)` of every pair, `[…, K]`.

    Example:
        >>> np.exp(log_bets(0.2))[:2].round(4).tolist()  # ε = 0.01: q = 0.3 wins, q = 0.1 loses
        [1.0233, 0.99]
    """
    return np.where(np.asarray(p_values)[..., None] <= LEVELS, _INSIDE, _OUTSIDE)


def log_mean_exp(values: np.ndarray) -> np.ndarray:
    """`log(mean(exp(values)))` over the last axis.

    Example:
        >>> round(float(np.exp(log_mean_exp(np.log(np.array([1.0, 3.0]))))), 6)
        2.0
    """
    return np.logaddexp.reduce(values, axis=-1) - np.log(values.shape[-1])


def unspent(bets: int) -> float:
    """`Σ_{j>t} π_j = 1 / log2(t + 2)`: what the martingale keeps for starts after t bets.

    It falls so slowly that a late onset costs little: `π_j` is about `1 / (j log² j)`.

    Example:
        >>> unspent(0), unspent(2)
        (1.0, 0.5)
    """
    return 1 / math.log2(bets + 2)


class Evidence:
    """The winnings of all bets since the start, as logarithms, which do not overflow.

    Attributes:
        bets: number of p-values bet on.

    Example:
        >>> evidence = Evidence()
        >>> for index in range(8):
        ...     evidence.bet(0.001, index)
        >>> bool(evidence.log_detector > np.log(10_000)), evidence.onset
        (True, 0)
    """

    def __init__(self) -> None:
        self.bets = 0
        # For e-detector and martingale, in one array: NumPy's call overhead exceeds the computation for an image.
        self._sums = np.full((2, len(LEVELS)), -np.inf)
        self._added = np.zeros((2, 1))
        self._means: list[float] | None = None
        self.cusum = np.full(len(LEVELS), -np.inf)
        self.starts = np.zeros(len(LEVELS), np.int64)

    def bet(self, p_value: float, index: int) -> None:
        """Bets on one p-value; `index` is the image's place in the stream."""
        won = np.where(p_value <= LEVELS, _INSIDE, _OUTSIDE)
        self._added[1] = math.log(unspent(self.bets) - unspent(self.bets + 1))
        self._sums = np.logaddexp(self._sums, self._added) + won
        self._means = None
        self.starts = np.where(self.cusum <= 0, index, self.starts)
        self.cusum = np.maximum(self.cusum, 0.0) + won
        self.bets += 1

    @property
    def detector(self) -> np.ndarray:
        """`log Σ_j L_j^t(k)` of every pair, `[K]`."""
        return self._sums[0]

    @property
    def martingale(self) -> np.ndarray:
        """`log Σ_j π_j L_j^t(k)` of every pair, `[K]`."""
        return self._sums[1]

    def _log_means(self) -> list[float]:
        if self._means is None:
            self._means = log_mean_exp(self._sums).tolist()
        return self._means

    @property
    def log_detector(self) -> float:
        """`log M_t`, −∞ before the first bet."""
        return self._log_means()[0]

    @property
    def log_cusum(self) -> float:
        """`log C_t`."""
        return float(log_mean_exp(self.cusum))

    @property
    def log_martingale(self) -> float:
        """`log S_t`, 0 at the start."""
        return float(np.logaddexp(self._log_means()[1], math.log(unspent(self.bets))))

    @property
    def onset(self) -> int:
        """The index at which the CUSUM's largest product starts."""
        return int(self.starts[self.cusum.argmax()])

    def lower(self, other: "Evidence") -> None:
        """Keeps the smaller of two values, bet by bet: less evidence than won is still valid."""
        self._sums, self._means = np.minimum(self._sums, other._sums), None
        self.cusum = np.minimum(self.cusum, other.cusum)
        self.starts = other.starts

    def get_state(self) -> dict[str, np.ndarray]:
        """All that was won, as arrays."""
        return {
            "bets": np.array(self.bets),
            "sums": self._sums,
            "cusum": self.cusum,
            "starts": self.starts,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> "Evidence":
        """Evidence that continues from a state."""
        evidence = cls()
        evidence.bets, evidence._sums = int(state["bets"]), state["sums"]
        evidence.cusum, evidence.starts = state["cusum"], state["starts"]
        return evidence
