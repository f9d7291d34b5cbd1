"""What is in a `.keras` file."""

import io
import zipfile

import h5py
import numpy as np


def state(path) -> dict[str, np.ndarray]:
    """Every weight and optimiser variable in a `.keras` file."""
    found = {}
    with zipfile.ZipFile(path) as archive, io.BytesIO(archive.read("model.weights.h5")) as file:

        def collect(name, node):
            if isinstance(node, h5py.Dataset):
                found[name] = node[()]

        h5py.File(file).visititems(collect)
    return found


def steps_in(path) -> int:
    """The optimiser's step."""
    counters = [value for value in state(path).values() if value.dtype == np.int64]
    assert len(counters) == 1
    return int(counters[0])


def differing(path, other_path) -> list[str]:
    """The variables whose values differ in any bit."""
    one, other = state(path), state(other_path)
    assert one.keys() == other.keys()
    return [key for key in one if not np.array_equal(one[key], other[key])]
