"""`python -m tfbnood.cli`."""

import sys

from tfbnood.cli.parser import main

sys.exit(main())
