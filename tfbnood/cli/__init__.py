"""The command `tfbnood`."""

from tfbnood.cli.main import main

__all__ = ["main"]
