"""Which false-alarm rate to use where nobody has chosen one."""

__all__ = ["DEFAULT_RATES", "default_false_alarm_rate"]

DEFAULT_RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def default_false_alarm_rate(count: int) -> float:
    """The smallest of `DEFAULT_RATES` that n calibration scores resolve: no p-value lies below 1/(n + 1).

    Example:
        >>> [default_false_alarm_rate(count) for count in (300, 99, 98, 30, 1)]
        [0.01, 0.01, 0.02, 0.05, 0.5]
    """
    least = 1 / (count + 1)
    return next(rate for rate in DEFAULT_RATES if rate >= least - 1e-12)
