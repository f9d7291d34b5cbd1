"""Online control of the false-discovery rate, for people who act on single alarms."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tfbnood.errors import DataError

__all__ = ["METHODS", "Method", "OnlineFdr"]

_MOST_DISCOVERIES = 1000


@dataclasses.dataclass(frozen=True)
class Method:
    """Constants of one procedure.

    Attributes:
        candidate: λ; p-values at or below it count as likely outliers and cost nothing. None: all tests cost.
        discard: τ; p-values above it count as certain inliers and cost nothing.
        gamma: how wealth is spent over time: integers `[n]` from 1 → non-increasing values with a sum of at most 1.

    Example:
        >>> METHODS["saffron"].candidate, METHODS["addis"].discard
        (0.5, 0.5)
    """

    candidate: float | None
    discard: float
    gamma: Callable[[np.ndarray], np.ndarray]

    @property
    def factor(self) -> float:
        """τ − λ."""
        return self.discard - (self.candidate or 0.0)


def _logarithmic(rank: np.ndarray) -> np.ndarray:
    # Javanmard & Montanari 2018, equation 31.
    logs = np.log(rank)
    return 0.07720838 * np.log(np.maximum(rank, 2)) / (rank * np.exp(np.sqrt(logs)))


def _power(rank: np.ndarray) -> np.ndarray:
    # The constant is 1/ζ(1.6).
    return 0.43749016577 * rank**-1.6


METHODS: MappingProxyType[str, Method] = MappingProxyType(
    {
        "lord++": Method(None, 1.0, _logarithmic),
        "saffron": Method(0.5, 1.0, _power),
        "addis": Method(0.25, 0.5, _power),
    }
)
"""By name: LORD++ (Ramdas et al. 2017), SAFFRON (Ramdas et al. 2018), ADDIS (Tian & Ramdas 2019)."""


class OnlineFdr:
    """Decides image by image so that the expected share of false alarms among all alarms so far is at most `fdr`.

    The level of the next test, with discoveries at κ_1, κ_2, …:

    `α_t = min(λ, (τ − λ)·[w γ(c_t) + (fdr − w) γ(c_t − c_κ1) + fdr Σ_{j≥2} γ(c_t − c_κj)])`

    where c counts the tests that cost wealth (all in LORD++, those with p > λ in SAFFRON, with λ < p ≤ τ in ADDIS).
    Proven for independent p-values. Conformal p-values share their n held-out scores, which makes them slightly
    dependent; simulated with n = 1,000 and 5,000, the rate is still 0.10 at `fdr=0.1`.

    The limit of n: outliers beyond all held-out scores have p-values spread over 0 to 1/(n + 1). If outliers are rare,
    the levels soon fall far below that, and few are discovered: `level` shows it. At `fdr=0.1` and n = 5,000, 99 % of
    such outliers are discovered at a share of 5 %, and 12 % at a share of 1 %.

    The latest 1,000 discoveries are kept; older ones no longer raise the level, which errs towards no alarm.

    Args:
        fdr: in (0, 1).
        method: a name of `METHODS`.
        wealth: w, in (0, fdr). Defaults to fdr / 2.

    Attributes:
        level: α_t of the next test.
        tests: number of p-values tested.
        discoveries: number of discoveries.

    Example:
        >>> online = OnlineFdr(0.05)
        >>> [online.test(p) for p in (2.9e-8, 0.067, 0.0017, 0.79)]
        [True, False, True, False]
        >>> round(online.level, 6)
        0.010937
    """

    def __init__(self, fdr: float = 0.05, *, method: str = "addis", wealth: float | None = None):
        if not isinstance(fdr, int | float) or not 0 < fdr < 1:
            raise DataError(f"fdr must lie in (0, 1). Received: fdr={fdr!r}")
        if method not in METHODS:
            known = ", ".join(METHODS)
            raise DataError(f"method must be one of {known}. Received: method={method!r}")
        wealth = fdr / 2 if wealth is None else wealth
        if not 0 < wealth < fdr:
            raise DataError(f"wealth must lie in (0, fdr). Received: wealth={wealth!r}, fdr={fdr}")
        self.fdr, self.method, self.wealth = float(fdr), method, float(wealth)
        self.tests = self.discoveries = self._cost = 0
        self._first: int | None = None
        self._later: list[int] = []

    @property
    def level(self) -> float:
        """The level of the next test."""
        method = METHODS[self.method]
        past = np.array([*self._later, self._first or 0, 0], np.float64)
        gamma = method.gamma(self._cost + 1 - past)
        level = self.wealth * gamma[-1]
        if self._first is not None:
            level += (self.fdr - self.wealth) * gamma[-2] + self.fdr * gamma[:-2].sum()
        return min(
            float(method.factor * level), math.inf if method.candidate is None else method.candidate
        )

    def test(self, p_value: float) -> bool:
        """Whether the next p-value is a discovery.

        Example:
            >>> OnlineFdr(0.05, method="lord++").test(0.001)
            True
        """
        if not 0 <= p_value <= 1:
            raise DataError(f"p_value must lie in [0, 1]. Received: p_value={p_value!r}")
        method = METHODS[self.method]
        found = bool(p_value <= self.level)
        candidate = method.candidate is not None and p_value <= method.candidate
        self.tests += 1
        self._cost += int(p_value <= method.discard and not candidate)
        if found:
            self.discoveries += 1
            if self._first is None:
                self._first = self._cost
            else:
                self._later = [*self._later, self._cost][-_MOST_DISCOVERIES:]
        return found

    def get_state(self) -> dict[str, Any]:
        """Everything that decisions depend on, JSON-safe.

        Example:
            >>> OnlineFdr(0.1).get_state()["tests"]
            0
        """
        return {
            "fdr": self.fdr,
            "method": self.method,
            "wealth": self.wealth,
            "tests": self.tests,
            "discoveries": self.discoveries,
            "cost": self._cost,
            "first": self._first,
            "later": list(self._later),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "OnlineFdr":
        """An instance that continues from a state.

        Example:
            >>> online = OnlineFdr(0.1)
            >>> online.test(1e-6)
            True
            >>> OnlineFdr.from_state(online.get_state()).level == online.level
            True
        """
        made = cls(state["fdr"], method=state["method"], wealth=state["wealth"])
        made.tests, made.discoveries = int(state["tests"]), int(state["discoveries"])
        made._cost, made._first = int(state["cost"]), state["first"]
        made._later = [int(cost) for cost in state["later"]]
        return made
