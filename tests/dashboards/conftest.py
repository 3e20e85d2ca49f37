"""The boards' source is beside the tests, not installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "dashboards"))
