"""Pictures of likelihoods, decisions, moments and evaluations."""

from tfbnood.plots.moments import moment_deviations, moment_map, moments
from tfbnood.plots.plots import (
    bits_against_share,
    contamination,
    delta_against_contamination,
    extremes,
    likelihoods,
    p_values,
    precision_recall,
    roc,
)

__all__ = [
    "bits_against_share",
    "contamination",
    "delta_against_contamination",
    "extremes",
    "likelihoods",
    "moment_deviations",
    "moment_map",
    "moments",
    "p_values",
    "precision_recall",
    "roc",
]
