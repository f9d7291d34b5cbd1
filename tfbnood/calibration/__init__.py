"""From scores to p-values and decisions."""

from tfbnood.calibration.clusters import Clusters
from tfbnood.calibration.conformal import (
    Calibration,
    benjamini_hochberg,
    calibrate,
    check_false_alarm_rate,
    conformal_p_values,
)
from tfbnood.calibration.mondrian import Mondrian

__all__ = [
    "Calibration",
    "Clusters",
    "Mondrian",
    "benjamini_hochberg",
    "calibrate",
    "check_false_alarm_rate",
    "conformal_p_values",
]
