"""Monitors streams with guarantees: has something changed, since when, which images show it, how often is it false?

Needs only NumPy and SciPy; TensorFlow is imported by the detector that scores images, if there is one.
"""

from tfbnood.monitor.estimates import Estimate
from tfbnood.monitor.online_fdr import OnlineFdr
from tfbnood.monitor.readings import Exemplar, Readings
from tfbnood.monitor.stream import Monitor
from tfbnood.monitor.thinning import AutocorrelationWarning

__all__ = [
    "AutocorrelationWarning",
    "Estimate",
    "Exemplar",
    "Monitor",
    "OnlineFdr",
    "Readings",
]
