"""The stages `bits` and `shares`: likelihoods in both modes of batch normalisation, and in mixed batches."""

from typing import TypedDict

import numpy as np

from tfbnood._core.batching import map_batches
from tfbnood.metrics import auroc, average_precision
from tfbnood.reproduce.context import StudyContext
from tfbnood.reproduce.studies import SHARES
from tfbnood.scoring.conditional import ConditionalLogProb, frozen_log_prob

__all__ = ["Shares", "measure_bits", "measure_shares", "round_values", "score_bits"]

# With one draw at r = 0.15, the random reference images change likelihoods more than a few test images do.
DRAWS = 4


class Shares(TypedDict):
    """By set and share r: mean bits per dimension; by set of outliers and metric: its value at every share."""

    shares: tuple[float, ...]
    draws: int
    bits: dict[str, list[float]]
    metrics: dict[str, dict[str, list[float]]]


def measure_bits(context: StudyContext) -> dict[str, dict[str, list[float]]]:
    """Bits per dimension of every image in both modes, by mode and set."""
    sets = context.sample_sets()
    return {
        mode: {
            name: round_values(score_bits(context, images, training=mode == "training"))
            for name, images in sets.items()
        }
        for mode in ("evaluation", "training")
    }


def measure_shares(context: StudyContext) -> Shares:
    """By share r of test images in mixed batches: mean bits per dimension, and AUROC and AP of |S_0 − S_r|."""
    conditional = ConditionalLogProb(context.model, context.dataset.train)
    # Rows are shares, of which the first is 0.
    values = {
        name: np.stack(
            # Evaluation mode, the share 0, is the same in every draw.
            [
                conditional(images, ratio=share, draws=DRAWS if share else 1, progress=True)
                for share in SHARES
            ]
        )
        for name, images in context.sample_sets().items()
    }
    deltas = {name: np.abs(of[0] - of) for name, of in values.items()}
    inliers = deltas.pop(context.study.data)
    metrics = {}
    for name, outliers in deltas.items():
        pools = np.concatenate([inliers, outliers], axis=1)
        is_ood = np.arange(pools.shape[1]) >= inliers.shape[1]
        metrics[name] = {
            "auroc": [auroc(is_ood, pool) for pool in pools],
            "average_precision": [average_precision(is_ood, pool) for pool in pools],
        }
    return {
        "shares": SHARES,
        "draws": DRAWS,
        "bits": {
            name: [float(context.to_bits_per_dim(row).mean()) for row in of]
            for name, of in values.items()
        },
        "metrics": metrics,
    }


def score_bits(context: StudyContext, images: np.ndarray, *, training: bool) -> np.ndarray:
    """Bits per dimension of every image; training mode in batches of 64 of their own kind."""
    log_prob = frozen_log_prob(context.model)
    values = map_batches(lambda batch: log_prob(batch, training), images, progress=True)
    return context.to_bits_per_dim(values)


def round_values(values: np.ndarray) -> list[float]:
    """Rounds for files: five digits are more than a picture shows."""
    return [float(f"{value:.5g}") for value in values]
