"""The stage `training`: size and data of a study's model, for the page to state."""

import re
from typing import TypedDict

import numpy as np

from tfbnood.reproduce.context import StudyContext

__all__ = ["Training", "describe_training"]


class Training(TypedDict):
    """Trainable parameters, training images, and where these come from."""

    parameters: int
    train_images: int
    source: str


def describe_training(context: StudyContext) -> Training:
    """Trains the model if need be, and describes it."""
    return {
        "parameters": int(sum(np.prod(one.shape) for one in context.model.trainable_weights)),
        "train_images": len(context.dataset.train),
        # Files by name: where they lie on one machine is of no use on another.
        "source": re.sub(r"[^\s,]*/(?=[^/\s,]+\.npz)", "", context.dataset.source),
    }
