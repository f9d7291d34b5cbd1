"""`tfbnood data`: lists the data sets on this machine."""

import argparse
from typing import Any

from tfbnood.cli import checks, options

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Adds the command's parser."""
    command = commands.add_parser(
        "data",
        help="list the data sets on this machine",
        description="Lists data sets, where they come from and how many images they have.",
    )
    command.add_argument(
        "names", nargs="*", metavar="NAME", help="data sets to list (default: all known ones)"
    )
    options.data_dir(command)
    options.as_json(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Prints a line or a JSON object per data set."""
    checks.check_data_sets("NAME", arguments.names, arguments.data_dir)
    from tfbnood.data.sets import describe

    print(describe(arguments.names, data_dir=arguments.data_dir, as_json=arguments.json))
