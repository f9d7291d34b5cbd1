"""Nats of an image as bits per dimension: −log p / (D · ln 2)."""

import math
from typing import Any

__all__ = ["bits_per_dim"]


def bits_per_dim(log_prob: Any, image_shape: tuple[int, ...]) -> Any:
    """Bits per dimension of log-likelihoods in nats, as arrays or tensors."""
    return -log_prob / (math.prod(image_shape) * math.log(2))
