"""The methods a model must have for each purpose.

Checks ask for a protocol, never for a class: any object with the methods will do, ours or a user's.
"""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

__all__ = ["Encoder", "FeatureExtractor", "Likelihood", "Reconstructor"]


@runtime_checkable
class Likelihood(Protocol):
    """A model of the density of images: the basis of most statistics.

    Example:
        >>> isinstance(model, Likelihood), isinstance(None, Likelihood)
        (True, False)
    """

    def log_prob(self, images: Any, training: bool = False) -> "tf.Tensor":
        """Log-likelihoods in nats, `[n]`, of images `[n, height, width, channels]` in 0–255.

        `training` selects the moments that batch normalisation uses: the batch's own, or the moving ones.
        """
        ...


@runtime_checkable
class FeatureExtractor(Protocol):
    """A network that maps images to vectors, such as a classifier without its last layer.

    `tfbnood.networks.Network` turns any Keras model into one.
    """

    def features(self, images: Any, training: bool = False) -> "tf.Tensor":
        """Features `[n, f]` of images `[n, height, width, channels]` in 0–255."""
        ...


@runtime_checkable
class Encoder(Protocol):
    """A flow, which maps images to latents that are standard normal in-distribution."""

    def encode(self, images: Any) -> "np.ndarray":
        """Latents `[n, …]` of images `[n, height, width, channels]` in 0–255."""
        ...


@runtime_checkable
class Reconstructor(Protocol):
    """A model that maps images to reconstructions, such as an autoencoder."""

    def reconstruct(self, images: Any) -> "np.ndarray":
        """Reconstructions `[n, height, width, channels]` in 0–255 of images of the same shape."""
        ...
