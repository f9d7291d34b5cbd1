"""`tfbnood models`: lists the detectors that ship with the package."""

import argparse
import json
from typing import Any

from tfbnood.cli import options

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "models",
        help="list the detectors that ship with the package",
        description="Lists the shipped detectors: names for `tfbnood score` and tfbnood.load.",
    )
    options.as_json(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Prints one line per detector."""
    from tfbnood._core import shipped
    from tfbnood._core.tables import aligned

    found = []
    for name in shipped.names():
        manifest = json.loads((shipped.base(name) / "MANIFEST.json").read_text("utf-8"))
        training = manifest["training"]
        found.append(
            {
                "name": name,
                "data": training["data"],
                "model": training["model"],
                "steps": training["steps"],
                "calibration_images": manifest["calibration_images"],
            }
        )
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    lines = [["name", "data", "model", "steps", "calibration images"]]
    lines += [[str(value) for value in one.values()] for one in found]
    print(aligned(lines))
