"""How much faster the reader of pages is than prometheus_client's parser: `python tests/bench/bench_exposition.py`.

Both read the pages of a recorded trace in turn, so that counters move between reads as they do
between polls, and what else the machine does meets both alike. Exit status 1 below `WANTED`.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.trace import scrapes

TRACE = Path(__file__).parents[1] / "data" / "traces" / "healthy"
WANTED = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path, default=TRACE, help="a recorded trace")
    parser.add_argument("--rounds", type=int, default=5, help="how often all of its pages are read")
    parsed = parser.parse_args()
    bodies = [scrape.body for scrape in scrapes(parsed.trace) if scrape.body]
    reader = PageReader(is_wanted)
    first = milliseconds(lambda: reader.read(bodies[0]))
    reader.read(bodies[1])
    ours, theirs = [], []
    for _ in range(parsed.rounds):
        for body in bodies:
            ours.append(milliseconds(lambda body=body: reader.read(body)))
            theirs.append(milliseconds(lambda body=body: list(text_string_to_metric_families(body.decode()))))
    ratio = statistics.median(theirs) / statistics.median(ours)
    lines = len(bodies[0].splitlines())
    print(f"page                {lines} lines, {len(bodies[0]) / 1024:.0f} KiB, {len(ours)} reads of each")
    print(f"prometheus_client   {spread(theirs)}")
    print(f"prefixwatch         {spread(ours)}; a page never seen before {first:.2f} ms")
    print(f"ratio               {ratio:.0f} (at least {WANTED:.0f} is wanted)")
    return 0 if ratio >= WANTED else 1


def milliseconds(read: Callable[[], object]) -> float:
    start = time.perf_counter()
    read()
    return (time.perf_counter() - start) * 1000


def spread(values: list[float]) -> str:
    tenths = statistics.quantiles(values, n=10)
    return f"{statistics.median(values):.3f} ms median, {tenths[0]:.3f} to {tenths[-1]:.3f} ms for 8 of 10"


if __name__ == "__main__":
    sys.exit(main())
