"""How well a detector works."""

from tfbnood.evaluation.result import Bits, Evaluation, Row
from tfbnood.evaluation.run import evaluate

__all__ = ["Bits", "Evaluation", "Row", "evaluate"]
