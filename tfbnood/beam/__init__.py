"""Detectors on many machines, as transforms of Apache Beam: `pip install "tfbnood[beam]"`.

`ScoreImages` scores images from files, TFRecords, Parquet files or a PCollection, `GroupTest` tests whole groups of
them, and `ExportHandler` runs any signature of an export in Beam's own `RunInference`. `score_pipeline` does all of it
in one call. They run exported versions of detectors, as TF Serving does; `Detector.export` writes them.

Single images are scored independently, so that a score does not depend on workers, bundles or retries.
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
