"""Likelihood models with batch normalisation; each is a `keras.Model`."""

from tfbnood.models.base import LikelihoodModel
from tfbnood.models.pixelcnn import PixelCNN
from tfbnood.models.real_nvp import RealNVP
from tfbnood.models.vae import VAE

__all__ = ["VAE", "LikelihoodModel", "PixelCNN", "RealNVP"]
