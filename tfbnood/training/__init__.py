"""Training in a folder, which can resume."""

from tfbnood.models.registry import MODELS
from tfbnood.training.run import train
from tfbnood.training.schedule import ConstantThenDecay
from tfbnood.training.stream import batches, mutated

__all__ = ["MODELS", "ConstantThenDecay", "batches", "mutated", "train"]
