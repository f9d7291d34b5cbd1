"""From scores to p-values and decisions."""

from tfbnood.calibration.conformal import (
    Calibration,
    benjamini_hochberg,
    calibrate,
    check_false_alarm_rate,
    conformal_p_values,
)

__all__ = [
    "Calibration",
    "benjamini_hochberg",
    "calibrate",
    "check_false_alarm_rate",
    "conformal_p_values",
]
