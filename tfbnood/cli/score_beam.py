"""`tfbnood score --runner`: scores with Apache Beam, on as many machines as the runner has.

Only the workers import TensorFlow.
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
        "URLs, such as gs:// or s3://. Beam's own options follow --, as in: tfbnood score savedmodels/mine "
        "'gs://bucket/**.jpg' --out gs://bucket/scores.parquet --runner FlinkRunner -- --flink_master=host:8081",
    )
    options.add_argument("--runner", choices=RUNNERS, help="score with this runner of Apache Beam")
    options.add_argument(
        "--group-by",
        metavar="REGEX",
        help=r"also test groups of images as a whole, named by the parts of the path in parentheses, e.g. '(cam\d+)/'",
    )
    options.add_argument(
        "--image-column",
        metavar="NAME",
        help="field with the image bytes in TFRecords and Parquet files (default: image)",
    )
    options.add_argument(
        "--key-column", metavar="NAME", help="field with a unique key (default: file and row)"
    )
    options.add_argument(
        "--no-wait", action="store_true", help="return as soon as the runner has the pipeline"
    )
    command.set_defaults(passed_on=[])


def check_absent(arguments: argparse.Namespace) -> None:
    """Refuses options that need --runner."""
    given = [f"--{name.replace('_', '-')}" for name in _OURS if getattr(arguments, name)]
    out = arguments.out
    if out is not None and (isinstance(out, str) or out.suffix == ".jsonl"):
        given.append(f"--out {out}")
    if given:
        raise TfbnoodError(f"{given[0]} needs --runner. Received: no --runner")


def run(arguments: argparse.Namespace) -> None:
    """Runs the pipeline and prints its counters."""
    _check(arguments)
    # Beam logs this for every model if scikit-learn, with which it guesses how many models fit, is not installed.
    logging.getLogger().addFilter(lambda record: "Resource module" not in str(record.msg))
    from tfbnood.beam import ReadImages, score_pipeline

    summary = score_pipeline(
        _find_base(arguments.detector),
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
    print(*_format_counters(summary), sep="\n")


def _check(arguments: argparse.Namespace) -> None:
    """Checks that need neither Beam nor TensorFlow."""
    given = {
        "--url": arguments.url,
        "--fpr": arguments.fpr,
        "--csv": arguments.csv,
        "--skip-unreadable": arguments.skip_unreadable,
        "--fdr without --group-by": arguments.fdr and not arguments.group_by,
    }
    reasons = {
        "--fpr": "the rate is fixed in the export",
        "--csv": "give --out scores.csv",
        "--skip-unreadable": "unreadable files are always listed beside --out",
        "--fdr without --group-by": "it applies to groups",
    }
    for name, value in given.items():
        if value:
            reason = f": {reasons[name]}" if name in reasons else ""
            raise TfbnoodError(f"{name} cannot be combined with --runner{reason}")
    out = arguments.out
    if out is None or os.path.splitext(out)[1] not in SUFFIXES:
        received = "none" if out is None else os.fspath(out)
        raise TfbnoodError(
            f"--out must end in {', '.join(SUFFIXES)} with --runner. Received: {received}"
        )
    clash = [one for one in arguments.passed_on if one.partition("=")[0] == "--runner"]
    if clash:
        raise TfbnoodError(f"--runner must be given once, before --. Received: {clash[0]} after it")


def _find_base(text: str) -> str:
    """The base of a shipped detector, given by name; anything else is a path or URL of an export."""
    if text in shipped.names() and not os.path.isdir(text):
        return os.fspath(shipped.base(text))
    return text


def _format_counters(summary: Any) -> list[str]:
    values = dataclasses.asdict(summary)
    del values["output"]
    return [f"{name:27}{value:12,}" for name, value in values.items() if value is not None]
