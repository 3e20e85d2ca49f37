"""The programs that write the rules and the chart's copies are beside the tests, not installed."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "alerts"), str(ROOT / "helm")]
