"""What a poll costs by its parts, at three windows, once the first minutes are over.

    python tests/bench/bench_poll.py [--minutes 10] [--period 1]

Traffic of the stand-in (16 requests a second, long prompts warm, short ones cold), recorded in
simulated time and replayed as the exporter would. CPU milliseconds of one thread.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from prefixwatch.config import Config
from prefixwatch.demo.offline import record
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.targetwatch import TargetWatch
from prefixwatch.trace import scrapes

PARTS = ("read the page", "interpret", "add to the history", "derive figures", "all of it")
WARM_UP = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--period", type=float, default=1.0)
    options = parser.parse_args()
    config = Config()
    reader, interpreter = PageReader(is_wanted), Interpreter()
    watch = TargetWatch(
        "bench", spans=config.windows, diagnosed=config.diagnosis_window, hold_seconds=config.diagnosis_hold
    )
    costs: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        record("mixed_long_warm", Path(folder), seed=1, seconds=60 * options.minutes, period=options.period)
        for scrape in scrapes(Path(folder)):
            assert scrape.body is not None
            marks = [time.thread_time()]
            page = reader.read(scrape.body)
            marks.append(time.thread_time())
            reading = interpreter.interpret(page, time=scrape.time)
            marks.append(time.thread_time())
            watch.add(reading)
            marks.append(time.thread_time())
            watch.state(config.windows)
            marks.append(time.thread_time())
            costs.append((*(1e3 * (b - a) for a, b in itertools.pairwise(marks)), 1e3 * (marks[-1] - marks[0])))
    costs = costs[int(WARM_UP * len(costs)) :]
    print(f"{len(costs)} polls, one every {options.period:g} s")
    for name, column in zip(PARTS, zip(*costs, strict=True), strict=True):
        print(f"{name:20} {statistics.median(column):7.3f} ms median, {statistics.mean(column):7.3f} ms mean")


if __name__ == "__main__":
    main()
