"""Run the command line as ``python -m prefixwatch``."""

import sys

from prefixwatch.cli import main

sys.exit(main())
