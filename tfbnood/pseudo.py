"""The public path of `tfbnood.data.pseudo`."""

from tfbnood.data.pseudo import *  # noqa: F403
from tfbnood.data.pseudo import __all__ as __all__
