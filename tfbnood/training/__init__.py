"""Training into a folder that resumes."""

from tfbnood.training.run import MODELS, ConstantThenDecay, batches, mutated, train

__all__ = ["MODELS", "ConstantThenDecay", "batches", "mutated", "train"]
