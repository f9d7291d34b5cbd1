"""The errors users meet: one plain sentence each, so that the shell can print it without a traceback."""

__all__ = ["DataError", "TfbnoodError", "TrainingDivergedError"]


class TfbnoodError(Exception):
    """Base of every error that tfbnood raises on purpose."""


class DataError(TfbnoodError, ValueError):
    """Images, files or names that cannot be used as given."""


class TrainingDivergedError(TfbnoodError, FloatingPointError):
    """The training loss is no longer a finite number."""
