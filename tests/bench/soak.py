"""Hours of demo traffic with random faults, at simulated time: no wrong figure, memory flat.

    python tests/bench/soak.py [--hours 1] [--engines 3] [--seed 1] [--period 1]

Stand-in engines with changing traffic answer the exporter's own poller over a network that fails at random. After each
poll what is exported is held against what the stand-ins really did. Prints a table of the faults and one of the checks;
exits 1 where a figure was wrong, or memory grew.
"""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "exporter"), str(ROOT / "tests")]

from faults.soaking import Soak  # noqa: E402

MOST_GROWTH = 0.1
"""Memory may grow by this share between the middle and the end: the stand-ins, whose pools fill, are in it too."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--engines", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--period", type=float, default=1.0, help="seconds between polls")
    options = parser.parse_args()
    logging.getLogger("prefixwatch").setLevel(logging.ERROR)  # that targets fail is what is wanted here
    soak = Soak(seed=options.seed, engines=options.engines, period=options.period)
    asyncio.run(soak.run(seconds=3600 * options.hours))
    growth = soak.memory_growth()
    print(f"seed {options.seed}: {options.hours:g} h, {options.engines} engines, {soak.polls} polls, {soak.kept} good")
    tables = {"fault": soak.faults, "refused as": soak.reasons, "checked": soak.checks.counts}
    if soak.checks.violations:
        tables["WRONG"] = soak.checks.violations
    for title, counts in tables.items():
        print(f"\n  {title:28} times")
        for name, count in sorted(counts.items()):
            print(f"  {name:28} {count:6}")
    print(f"\n  memory: {soak.megabytes[-1]:.0f} MB at the end, {growth:+.1%} since the middle")
    for words in soak.checks.wrong:
        print(f"  wrong: {words}")
    return int(bool(soak.checks.violations) or growth > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
