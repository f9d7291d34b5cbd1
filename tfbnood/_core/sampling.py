"""Random samples of images."""

import numpy as np

__all__ = ["halves", "sample_of", "shuffled_halves", "take"]


def take(images: np.ndarray, n: int | None, seed: int) -> np.ndarray:
    """At most n random images, in their order."""
    if n is None or n >= len(images):
        return images
    return images[np.sort(np.random.RandomState(seed).permutation(len(images))[:n])]


def halves(images: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two random halves, each in its order."""
    order = np.random.RandomState(seed).permutation(len(images))
    middle = len(images) // 2
    return images[np.sort(order[:middle])], images[np.sort(order[middle:])]


def shuffled_halves(images: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two random halves in random order, so that the first images of each are a random sample."""
    order = np.random.RandomState(seed).permutation(len(images))
    middle = len(images) // 2
    return images[order[:middle]], images[order[middle:]]


def sample_of(reference: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Takes at most `count` random images, since the first ones of a user's file may all be of one class.

    Example:
        >>> tfbnood.statistics.sample_of(x.train, 5).shape
        (5, 8, 8, 1)
    """
    return reference[np.random.RandomState(seed).permutation(len(reference))[:count]]
