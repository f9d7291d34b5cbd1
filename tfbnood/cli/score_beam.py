"""`tfbnood score --runner`: the same by Apache Beam, on as many machines as the runner has.

TensorFlow is imported by the workers alone.
"""

import argparse
import dataclasses
import json
import logging
import os
from typing import Any

from tfbnood._core import shipped
from tfbnood.errors import TfbnoodError

__all__ = ["RUNNERS", "SUFFIXES", "add", "check_absent", "run"]

RUNNERS = (
    "DirectRunner",
    "FnApiRunner",
    "PrismRunner",
    "PortableRunner",
    "FlinkRunner",
    "SparkRunner",
    "DataflowRunner",
)
SUFFIXES = (".jsonl", ".csv", ".parquet")
_OURS = ("group_by", "image_column", "key_column", "no_wait")


def add(command: argparse.ArgumentParser) -> None:
    """Adds the options that go with --runner."""
    options = command.add_argument_group(
        "with Apache Beam",
        "WHAT is an exported model and WHERE a folder or pattern of images, TFRecords or Parquet files; both may be "
        "URLs, such as gs:// or s3://. Options of Beam follow --, as in: tfbnood score savedmodels/mine "
        "'gs://bucket/**.jpg' --out gs://bucket/scores.parquet --runner FlinkRunner -- --flink_master=host:8081",
    )
    options.add_argument("--runner", choices=RUNNERS, help="score by this runner of Apache Beam")
    options.add_argument(
        "--group-by",
        metavar="REGEX",
        help=r"also test groups of images as a whole, e.g. '(cam\d+)/': the parts of the path in parentheses",
    )
    options.add_argument(
        "--image-column",
        metavar="NAME",
        help="bytes of TFRecords and Parquet files (default: image)",
    )
    options.add_argument(
        "--key-column", metavar="NAME", help="unique key in them (default: file and row)"
    )
    options.add_argument(
        "--no-wait", action="store_true", help="return as soon as the runner has the pipeline"
    )
    command.set_defaults(passed_on=[])


def check_absent(arguments: argparse.Namespace) -> None:
    """Refuses what only a runner understands."""
    given = [f"--{name.replace('_', '-')}" for name in _OURS if getattr(arguments, name)]
    out = arguments.out
    if out is not None and (isinstance(out, str) or out.suffix == ".jsonl"):
        given.append(f"--out {out}")
    if given:
        raise TfbnoodError(f"{given[0]} goes with --runner. Received: no --runner")


def run(arguments: argparse.Namespace) -> None:
    """Runs the pipeline, and prints what its counters say."""
    _check(arguments)
    # Beam says it of every model where scikit-learn is not there to guess how many models fit.
    logging.getLogger().addFilter(lambda record: "Resource module" not in str(record.msg))
    from tfbnood.beam import ReadImages, score_pipeline

    summary = score_pipeline(
        _model_base(arguments.detector),
        ReadImages(
            arguments.images, image=arguments.image_column or "image", key=arguments.key_column
        ),
        output=arguments.out,
        group_by=arguments.group_by,
        **({} if arguments.fdr is None else {"fdr": arguments.fdr}),
        options=[f"--runner={arguments.runner}", *arguments.passed_on],
        wait=not arguments.no_wait,
    )
    if arguments.json:
        print(json.dumps(dataclasses.asdict(summary), indent=2))
        return
    print(summary)
    print(*_counters(summary), sep="\n")


def _check(arguments: argparse.Namespace) -> None:
    """What needs neither Beam nor TensorFlow to be refused."""
    given = {
        "--url": arguments.url,
        "--fpr": arguments.fpr,
        "--csv": arguments.csv,
        "--skip-unreadable": arguments.skip_unreadable,
        "--fdr without --group-by": arguments.fdr and not arguments.group_by,
    }
    reasons = {
        "--fpr": "the export has set the rate",
        "--csv": "give --out scores.csv",
        "--skip-unreadable": "what cannot be read is always listed beside --out",
        "--fdr without --group-by": "it is that of the groups",
    }
    for name, value in given.items():
        if value:
            reason = f": {reasons[name]}" if name in reasons else ""
            raise TfbnoodError(f"{name} does not go with --runner{reason}")
    out = arguments.out
    if out is None or os.path.splitext(out)[1] not in SUFFIXES:
        received = "none" if out is None else os.fspath(out)
        raise TfbnoodError(
            f"--out must end in {', '.join(SUFFIXES)} with --runner. Received: {received}"
        )
    clash = [one for one in arguments.passed_on if one.partition("=")[0] == "--runner"]
    if clash:
        raise TfbnoodError(f"--runner must be given once, before --. Received: {clash[0]} after it")


def _model_base(text: str) -> str:
    """A shipped detector by its name; anything else is a path or URL of an export."""
    if text in shipped.names() and not os.path.isdir(text):
        return os.fspath(shipped.base(text))
    return text


def _counters(summary: Any) -> list[str]:
    values = dataclasses.asdict(summary)
    del values["output"]
    return [f"{name:27}{value:12,}" for name, value in values.items() if value is not None]
