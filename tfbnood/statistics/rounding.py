"""Large arrays as bytes: half the size of half precision, in a saved detector and in its export."""

from collections.abc import Collection

import numpy as np

__all__ = ["as_bytes", "factor_name", "with_factors"]


def as_bytes(array: np.ndarray, axis: int | tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """int8 values, and the float32 factors that turn them back: one for all values along `axis`.

    No value is rounded by more than 1/254 of the largest one that shares its factor.

    Example:
        >>> values, factor = as_bytes(np.array([[1.0, -2.0], [0.01, 0.03]]), axis=1)
        >>> values
        array([[  64, -127],
               [  42,  127]], dtype=int8)
        >>> np.round(values * factor, 3)
        array([[ 1.008, -2.   ],
               [ 0.01 ,  0.03 ]], dtype=float32)
    """
    largest = np.abs(array).max(axis=axis, keepdims=True)
    factor = (np.maximum(largest, 1e-30) / 127).astype(np.float32)
    return np.rint(array / factor).astype(np.int8), factor


def factor_name(name: str) -> str:
    """The attribute with the factors of the bytes in the attribute `name`."""
    return f"{name}factor_"


def with_factors(state: dict[str, np.ndarray], names: Collection[str]) -> dict[str, np.ndarray]:
    """A saved state with factors of 1 for arrays that are in half precision, as before format 3 of saved detectors."""
    halves = [name for name, array in state.items() if array.dtype == np.float16]
    ones = {factor_name(name): np.ones((), np.float32) for name in halves}
    return {name: one for name, one in ones.items() if name in names} | state
