"""The default false-alarm rate."""

__all__ = ["DEFAULT_RATES", "default_false_alarm_rate"]

DEFAULT_RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
# So many calibration images may be odd themselves without hiding outliers.
_ODD = 2


def default_false_alarm_rate(count: int) -> float:
    """The smallest of `DEFAULT_RATES` at which two odd images among n calibration images do no harm.

    An image that scores between the second and the third highest of them has the p-value 3/(n + 1). At a rate of
    1/(n + 1), a single odd calibration image would hide every outlier that is less odd.

    Example:
        >>> [default_false_alarm_rate(count) for count in (300, 299, 298, 150, 30, 5, 1)]
        [0.01, 0.01, 0.02, 0.02, 0.1, 0.5, 0.5]
    """
    least = (1 + _ODD) / (count + 1)
    return next((rate for rate in DEFAULT_RATES if rate >= least - 1e-12), DEFAULT_RATES[-1])
