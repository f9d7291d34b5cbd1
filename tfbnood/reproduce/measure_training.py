"""The stage `training`: size and data of a study's model, for the page to state."""

import re
from typing import TypedDict

import numpy as np

from tfbnood.reproduce.context import StudyContext

__all__ = ["Training", "describe_training"]


class Training(TypedDict):
    """Trainable parameters, training images, and their source."""

    parameters: int
    train_images: int
    source: str


def describe_training(context: StudyContext) -> Training:
    """Trains the model if needed, and describes it."""
    return {
        "parameters": int(sum(np.prod(one.shape) for one in context.model.trainable_weights)),
        "train_images": len(context.dataset.train),
        # Files by name only: paths of one machine are useless on another.
        "source": re.sub(r"[^\s,]*/(?=[^/\s,]+\.npz)", "", context.dataset.source),
    }
