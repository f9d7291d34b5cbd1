"""Which false-alarm rate to use where nobody has chosen one."""

__all__ = ["DEFAULT_RATES", "default_false_alarm_rate"]

DEFAULT_RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
# Of the calibration images, so many may be odd themselves without hiding every outlier.
_ODD = 2


def default_false_alarm_rate(count: int) -> float:
    """The smallest of `DEFAULT_RATES` at which two odd ones among n calibration images do no harm.

    An image that scores between the second and the third highest of them has the p-value 3/(n + 1). Were the rate
    1/(n + 1), a single odd calibration image would keep every outlier that is less odd from being flagged.

    Example:
        >>> [default_false_alarm_rate(count) for count in (300, 299, 298, 150, 30, 5, 1)]
        [0.01, 0.01, 0.02, 0.02, 0.1, 0.5, 0.5]
    """
    least = (1 + _ODD) / (count + 1)
    return next((rate for rate in DEFAULT_RATES if rate >= least - 1e-12), DEFAULT_RATES[-1])
