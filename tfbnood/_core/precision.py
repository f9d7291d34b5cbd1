"""The number formats that a model's networks can be trained in, and which of them the processor computes with.

Without TensorFlow, so that the shell knows them at once.
"""

import functools

from tfbnood.errors import TfbnoodError

__all__ = ["PRECISIONS", "check_precision", "has_bfloat16", "warn_of_precision"]

PRECISIONS = ("float32", "mixed_bfloat16")
# What /proc/cpuinfo calls the instructions that multiply bfloat16 numbers.
_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"})


def check_precision(precision: str, *, argument: str = "precision") -> str:
    """Returns a known precision.

    Example:
        >>> check_precision("float32")
        'float32'
    """
    if precision not in PRECISIONS:
        raise TfbnoodError(
            f"{argument} must be one of {', '.join(PRECISIONS)}. Received: {argument}={precision!r}"
        )
    return precision


def warn_of_precision(precision: str, *, argument: str = "precision") -> str:
    """Checks a precision, and returns a sentence to warn with where the processor would only imitate it.

    Example:
        >>> warn_of_precision("float32")
        ''
    """
    if check_precision(precision, argument=argument) == "float32" or has_bfloat16():
        return ""
    return (
        f"{argument} should be float32 here: this processor has no bfloat16 numbers (AVX512_BF16 or AMX), and training "
        f"steps take longer with them, not shorter. Received: {argument}={precision}"
    )


@functools.cache
def has_bfloat16(path: str = "/proc/cpuinfo") -> bool:
    """True where the processor multiplies bfloat16 numbers itself; elsewhere training in it is slower, not faster."""
    try:
        with open(path) as lines:
            words = (line.split(":", 1) for line in lines if ":" in line)
            flags = {
                flag
                for name, of in words
                if name.strip().lower() in ("flags", "features")
                for flag in of.split()
            }
    except OSError:
        return False
    return bool(flags & _FLAGS)
