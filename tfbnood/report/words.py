"""Numbers as words, with the same rules as the page's script: its texts must not change when the script runs."""

import math

__all__ = ["about", "by_chance", "flagged_words", "p_value_text", "percent", "rate_words"]

_SPACE = "\u00a0"  # does not break


def percent(rate: float, digits: int = 3) -> str:
    """A rate in per cent.

    Example:
        >>> percent(0.01).replace("\u00a0", " "), percent(1 / 301).replace("\u00a0", " ")
        ('1 %', '0.332 %')
    """
    return f"{100 * rate:.{digits}g}{_SPACE}%"


def p_value_text(p_value: float) -> str:
    """A p-value to two digits.

    Example:
        >>> p_value_text(1 / 301)
        '0.0033'
    """
    return f"{p_value:.2g}"


def by_chance(images: int, rate: float, calibration_images: int) -> float:
    """Expected number of flagged in-distribution images: images · ⌊rate · (n + 1)⌋ / (n + 1).

    No p-value lies between two multiples of 1/(n + 1), n the number of calibration images.

    Example:
        >>> by_chance(1000, 0.01, 150)  # 1/151 each, as no p-value lies in (1/151, 1 %]
        6.622516556291391
    """
    # Rounding errors must not push a multiple of 1/(n + 1) below itself.
    return images * math.floor(rate * (calibration_images + 1) + 1e-9) / (calibration_images + 1)


def about(expected: float) -> str:
    """An expected number.

    Example:
        >>> about(0.01), about(0.33), about(3.29), about(1234.5)
        ('hardly any', 'about 0.3', 'about 3', 'about 1,235')
    """
    if expected < 0.05:
        return "hardly any"
    # As the script rounds: halves up.
    if expected < 0.95:
        return f"about {math.floor(10 * expected + 0.5) / 10:g}"
    return f"about {math.floor(expected + 0.5):,}"


def flagged_words(flagged: int, total: int) -> str:
    """A sentence on how many images look out of place.

    Example:
        >>> flagged_words(12, 330), flagged_words(0, 330), flagged_words(1, 1)  # doctest: +NORMALIZE_WHITESPACE
        ('12 of 330 images look out of place', 'None of 330 images looks out of place',
         '1 of 1 image looks out of place')
    """
    images = "images" if total > 1 else "image"
    verb = "look" if flagged > 1 else "looks"
    return f"{flagged or 'None':{',' if flagged else ''}} of {total:,} {images} {verb} out of place"


def rate_words(rate: float, expected: float) -> str:
    """What to compare the number of flagged images with.

    Example:
        >>> rate_words(0.01, 3.289).replace("\u00a0", " ")
        'at a false-alarm rate of 1 %; about 3 would by chance'
    """
    return f"at a false-alarm rate of {percent(rate)}; {about(expected)} would by chance"
