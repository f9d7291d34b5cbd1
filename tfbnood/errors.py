"""The errors users see: one plain sentence each, so that the command line can print it without a traceback."""

__all__ = [
    "DataError",
    "NotCalibratedError",
    "NotFittedError",
    "SavedDetectorError",
    "ServingError",
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
    """A statistic that is unknown, or does not fit the model or the settings."""


class NotFittedError(TfbnoodError, RuntimeError):
    """A statistic was asked for scores before `fit`."""


class NotCalibratedError(TfbnoodError, RuntimeError):
    """A detector was asked for p-values before `calibrate`."""


class SavedDetectorError(TfbnoodError, ValueError):
    """A saved detector that is damaged, edited or of a newer format."""


class ServingError(TfbnoodError):
    """A model that cannot be served, or a server that does not answer or answers with an error.

    Attributes:
        code: the HTTP status, where there was one.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
