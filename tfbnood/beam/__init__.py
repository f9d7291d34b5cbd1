"""Detectors past one machine, as transforms of Apache Beam: `pip install "tfbnood[beam]"`.

`ScoreImages` scores images from files, TFRecords, Parquet files or a PCollection, `GroupTest` tests whole groups of
them, and `ExportHandler` takes any signature of an export into Beam's own `RunInference`. `score_pipeline` is all of it
in one call. They run exported versions of detectors, the ones that TF Serving loads; `Detector.export` writes them.

Images on their own are scored on their own, so that a score does not depend on workers, bundles or retries.
"""

from tfbnood.beam._needed import MissingBeamError
from tfbnood.beam.export import Export, find_export
from tfbnood.beam.groups import GroupTest
from tfbnood.beam.handler import ExportHandler
from tfbnood.beam.pipeline import Summary, score_pipeline
from tfbnood.beam.read import ReadImages
from tfbnood.beam.score import Scored, ScoreImages
from tfbnood.beam.write import WriteRecords

__all__ = [
    "Export",
    "ExportHandler",
    "GroupTest",
    "MissingBeamError",
    "ReadImages",
    "ScoreImages",
    "Scored",
    "Summary",
    "WriteRecords",
    "find_export",
    "score_pipeline",
]
