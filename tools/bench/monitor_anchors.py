"""Delays where the answer is known: uniform scores, and outliers uniform in the top 10 % of them."""

import argparse
from typing import Any

import numpy as np
from monitor_counts import AFTER, CHANGE, delay, first

from tfbnood.monitor import Monitor
from tfbnood.monitor.pool import RankPool

__all__ = ["anchors", "anchors_of_jumper"]

NEVER = 1e300
SHARES = (1.0, 0.25, 0.1, 0.05)


def anchors(options: argparse.Namespace) -> dict[str, Any]:
    """Delays where the answer is known: uniform scores, and outliers uniform in the top 10 % of them."""
    found = {}
    for share in SHARES:
        hits, martingale = [], []
        for stream in range(options.few):
            held_out, scores = _uniform(share, stream, options)
            hits.append(_first_alarm(held_out, scores, stream, options).alarm_index)
            # From the first image on, as if the watch began with the change.
            alone = Monitor(held_out, NEVER, seed=stream, thin=1).update(scores=scores[CHANGE:])
            reached = np.flatnonzero(alone.log_martingale >= np.log(20))
            martingale.append(CHANGE + (reached[0] if len(reached) else AFTER))
        ended = np.array([CHANGE + AFTER if hit is None else hit for hit in hits])
        # KL divergence per image of the outliers' p-values from uniform ones.
        inside, outside = 1 - share + share / 0.1, 1 - share
        gain = 0.1 * inside * np.log(inside) + (0.9 * outside * np.log(outside) if outside else 0)
        found[f"{share:g}"] = {
            "monitor": delay(ended),
            "martingale ≥ 20, from the change on": delay(np.array(martingale)),
            "log(run_length) / KL": round(float(np.log(options.run_length) / gain), 1),
        }
    return found


def anchors_of_jumper(options: argparse.Namespace) -> dict[str, Any]:
    """The same streams with the usual bets of conformal martingales: `1 + ε (p − 1/2)`, ε jumping among −1, 0 and 1."""
    found = {}
    for share in SHARES:
        p_values = np.empty((2, options.few, CHANGE + AFTER))
        for stream in range(options.few):
            held_out, scores = _uniform(share, stream, options)
            for kind, start in enumerate((0, CHANGE)):
                pool, random = RankPool(held_out), np.random.default_rng(stream)
                for place, score in enumerate(scores[start:].tolist(), start):
                    p_values[kind, stream, place] = pool.p_value(score, random.random())
                    pool.add(score)
        wealth = _log_jumper(p_values[0])
        least = np.minimum.accumulate(np.pad(wealth, ((0, 0), (1, 0))), axis=1)[:, :-1]
        alone = np.full(wealth.shape, -np.inf)
        alone[:, CHANGE:] = _log_jumper(p_values[1, :, CHANGE:])
        found[f"{share:g}"] = {
            "CUSUM at the run length": delay(first(wealth - least >= np.log(options.run_length))),
            "martingale ≥ 20, from the change on": delay(first(alone >= np.log(20))),
        }
    return found


def _log_jumper(p_values: np.ndarray, rate: float = 0.01) -> np.ndarray:
    """Logarithm of the simple jumper's wealth, `[streams, length]` (Vovk et al. 2021)."""
    stakes, wealth, scale = np.full((len(p_values), 3), 1 / 3), [], np.zeros(len(p_values))
    for column in p_values.T:
        stakes = (1 - rate) * stakes + rate * stakes.mean(axis=1, keepdims=True)
        stakes = stakes * (1 + np.array([-1, 0, 1]) * (column[:, None] - 0.5))
        total = stakes.sum(axis=1)
        scale, stakes = scale + np.log(total), stakes / total[:, None]
        wealth.append(scale)
    return np.transpose(wealth)


def _uniform(
    share: float, stream: int, options: argparse.Namespace
) -> tuple[np.ndarray, np.ndarray]:
    """Held-out scores, and those of a stream that changes at `CHANGE`."""
    random = np.random.default_rng([options.seed, 7, stream])
    scores = random.random(CHANGE + AFTER)
    strange = np.flatnonzero(random.random(AFTER) < share) + CHANGE
    scores[strange] = 0.9 + 0.1 * random.random(len(strange))
    return random.random(options.held_out), scores


def _first_alarm(
    held_out: np.ndarray, scores: np.ndarray, seed: int, options: argparse.Namespace
) -> Monitor:
    monitor = Monitor(held_out, options.run_length, seed=seed)
    for start in range(0, len(scores), 50):
        monitor.update(scores=scores[start : start + 50])
        if monitor.alarm:
            break
    return monitor
