"""The errors users meet: one plain sentence each, so that the shell can print it without a traceback."""

__all__ = [
    "DataError",
    "NotCalibratedError",
    "NotFittedError",
    "SavedDetectorError",
    "StatisticError",
    "TfbnoodError",
    "TrainingDivergedError",
]


class TfbnoodError(Exception):
    """Base of every error that tfbnood raises on purpose."""


class DataError(TfbnoodError, ValueError):
    """Images, files or names that cannot be used as given."""


class TrainingDivergedError(TfbnoodError, FloatingPointError):
    """The training loss is no longer a finite number."""


class StatisticError(TfbnoodError, ValueError):
    """A statistic that is not known, or does not go with the model or the settings."""


class NotFittedError(TfbnoodError, RuntimeError):
    """A statistic was asked for scores before `fit`."""


class NotCalibratedError(TfbnoodError, RuntimeError):
    """A detector was asked for p-values before `calibrate`."""


class SavedDetectorError(TfbnoodError, ValueError):
    """A saved detector that is damaged, edited or of a newer format."""
