"""The public path of `tfbnood.scoring.conditional`."""

from tfbnood.scoring.conditional import *  # noqa: F403
from tfbnood.scoring.conditional import __all__ as __all__
