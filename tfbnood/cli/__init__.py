"""The command `tfbnood`."""

from tfbnood.cli.parser import main

__all__ = ["main"]
