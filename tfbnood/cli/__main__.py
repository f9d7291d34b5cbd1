"""`python -m tfbnood.cli`."""

import sys

from tfbnood.cli.main import main

sys.exit(main())
