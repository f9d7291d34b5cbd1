"""`tfbnood.Monitor` with `thin=1` on many streams at once; `tools/bench/monitor.py` checks it against the real one."""

import numpy as np

from tfbnood.monitor.bets import LEVELS, SHARES, unspent
from tfbnood.monitor.ranks import theta

__all__ = ["evidence", "p_values"]

_BLOCK = 250


def p_values(
    held_out: np.ndarray,
    scores: np.ndarray,
    seed: int,
    groups: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """P-values `[n]` of one stream, each among held-out and all earlier scores, within its group."""
    ties = np.array([theta(seed, index) for index in range(len(scores))])
    if groups is None:
        return _ranked(held_out, scores, ties)
    found = np.empty(len(scores))
    for group in np.unique(groups[1]):
        rows = groups[1] == group
        found[rows] = _ranked(held_out[groups[0] == group], scores[rows], ties[rows])
    return found


def _ranked(held_out: np.ndarray, scores: np.ndarray, ties: np.ndarray) -> np.ndarray:
    before, found = np.sort(held_out), []
    for start in range(0, len(scores), _BLOCK):
        block, tie = scores[start : start + _BLOCK], ties[start : start + _BLOCK]
        left, right = (before.searchsorted(block, side) for side in ("left", "right"))
        earlier = np.tri(len(block), k=-1, dtype=bool)
        greater = len(before) - right + (earlier & (block > block[:, None])).sum(axis=1)
        equal = right - left + (earlier & (block == block[:, None])).sum(axis=1)
        found.append((greater + tie * (equal + 1)) / (len(before) + np.arange(len(block)) + 1))
        before = np.sort(np.concatenate([before, block]))
    return np.concatenate(found)


def evidence(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The e-detector and the test martingale of p-values `[streams, n]`, both `[streams, n]`."""
    won_inside, won_outside = 1 - SHARES + SHARES / LEVELS, 1 - SHARES
    detector, martingale = np.zeros((2, len(found), len(LEVELS)))
    sums = np.empty((2, *found.shape))
    with np.errstate(over="ignore"):  # Long after an alarm.
        for place, column in enumerate(found.T):
            won = np.where(column[:, None] <= LEVELS, won_inside, won_outside)
            detector = (1 + detector) * won
            martingale = (martingale + unspent(place) - unspent(place + 1)) * won
            sums[0, :, place] = detector.mean(axis=1)
            sums[1, :, place] = martingale.mean(axis=1) + unspent(place + 1)
    return sums[0], sums[1]
