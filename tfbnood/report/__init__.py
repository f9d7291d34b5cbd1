"""Results as self-contained HTML files that need no network: scored images, an evaluation, a detector."""

from tfbnood.report.detector import detector_page, possible_rates
from tfbnood.report.document import document, escape, write_page
from tfbnood.report.evaluation import RocCurve, evaluation_page
from tfbnood.report.parts import Example
from tfbnood.report.score import most_suspicious, score_page

__all__ = [
    "Example",
    "RocCurve",
    "detector_page",
    "document",
    "escape",
    "evaluation_page",
    "most_suspicious",
    "possible_rates",
    "score_page",
    "write_page",
]
