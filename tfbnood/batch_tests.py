"""The public path of `tfbnood.calibration.batch_tests`."""

from tfbnood.calibration.batch_tests import *  # noqa: F403
from tfbnood.calibration.batch_tests import __all__ as __all__
