"""`python -m tfbnood`: the command where it is not on the path."""

import sys

from tfbnood.cli.parser import main

sys.exit(main())
