"""Pictures of likelihoods, decisions, moments and evaluations."""

from tfbnood.plots.curves import precision_recall, roc
from tfbnood.plots.decisions import extremes, p_values
from tfbnood.plots.evaluation import contamination, delta_against_contamination
from tfbnood.plots.gallery import gallery
from tfbnood.plots.likelihoods import bits_against_share, likelihoods
from tfbnood.plots.moments import moment_deviations, moment_map, moments

__all__ = [
    "bits_against_share",
    "contamination",
    "delta_against_contamination",
    "extremes",
    "gallery",
    "likelihoods",
    "moment_deviations",
    "moment_map",
    "moments",
    "p_values",
    "precision_recall",
    "roc",
]
