"""The number formats that networks can be trained in, and which of them the processor supports.

Without TensorFlow, so that the command line starts quickly.
"""

import functools

from tfbnood.errors import TfbnoodError

__all__ = ["PRECISIONS", "check_precision", "has_bfloat16", "warn_of_precision"]

PRECISIONS = ("float32", "mixed_bfloat16")
# The names in /proc/cpuinfo for instructions that multiply bfloat16 numbers.
_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"})


def check_precision(precision: str, *, argument: str = "precision") -> str:
    """Checks and returns a precision.

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
    """Checks a precision, and returns a warning if the processor would only emulate it.

    Example:
        >>> warn_of_precision("float32")
        ''
    """
    if check_precision(precision, argument=argument) == "float32" or has_bfloat16():
        return ""
    return (
        f"{argument} should be float32 here: this processor has no bfloat16 instructions (AVX512_BF16 or AMX), so "
        f"training would be slower, not faster. Received: {argument}={precision}"
    )


@functools.cache
def has_bfloat16(path: str = "/proc/cpuinfo") -> bool:
    """Whether the processor multiplies bfloat16 numbers natively; if not, training in bfloat16 is slower."""
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
