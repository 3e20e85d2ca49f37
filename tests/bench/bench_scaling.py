"""How the cost of a poll and of a scrape grows with engines, windows and histograms.

    python tests/bench/bench_scaling.py [--polls 60] [--engines 1 10 100 1000]

Pages of recorded traces (farm.py), every 5 s of simulated time, without a network. A poll is: read the page, interpret it, add it
to the history, derive the state; a scrape is the text of /metrics. CPU milliseconds; the memory is what the process
grew by, an engine. Each row is a process of its own, measured over the second half of the polls: in the first minutes
the request level is fitted often. The last table follows a few engines for an hour, after which memory grows no more.
"""

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from farm import PLAYED, TRACES, Recording, address_of
from processes import Usage

from prefixwatch.collector import StatusCollector
from prefixwatch.config import Config
from prefixwatch.discovery import Target
from prefixwatch.fetch import Address
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.settings import Duration
from prefixwatch.targetpoller import TargetStatus, watch_of
from prefixwatch.trace import scrapes

INTERVAL = 5.0
WINDOWS = tuple(Duration(seconds) for seconds in (60, 300, 3600, 6 * 3600, 24 * 3600))
USUAL_WINDOWS = 3
SCRAPES = 3
WARM_UP_POLLS = 20
_LE = re.compile(r'(?<=le=")[^"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a row measures. `histograms`: so many stay on the page, None: all; `finer`: so many buckets for each."""

    engines: int = 20
    polls: int
    windows: int = USUAL_WINDOWS
    histograms: int | None = None
    finer: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU milliseconds a poll and a scrape, kB an engine, lines a page."""

    poll: float
    scrape: float
    memory: float
    lines: int


class Watched:
    """One engine, polled without a network."""

    def __init__(self, number: int, recording: Recording, config: Config, reader: PageReader) -> None:
        name = f"{address_of(number)}:8000"
        target = Target(name=name, address=Address(url=f"http://{name}/metrics"), labels={})
        self._watch, self._interpreter, self._reader = watch_of(target, config), Interpreter(), reader
        self._recording, self._number, self._config = recording, number, config

    def poll(self, count: int, begin: float) -> tuple[float, int]:
        """Poll once; return the CPU seconds that it took, and the lines of the page."""
        at = begin + INTERVAL * count
        step = int(INTERVAL * count) + 7 * self._number
        body, _, _ = self._recording.page(step, rounds=self._number, began=begin - 3600 - self._number)
        started = time.thread_time()
        self._watch.add(self._interpreter.interpret(self._reader.read(body), time=at))
        state = self._watch.state(self._config.windows)
        spent = time.thread_time() - started
        self.status = TargetStatus(
            state=state, is_up=True, is_loading=False, is_stale=False, duration=0.01, last_success=at, began=begin, errors={}
        )  # fmt: skip
        return spent, body.count(b"\n")


def measured(setting: Setting) -> Cost:
    """Measure one row."""
    config = Config(windows=WINDOWS[: setting.windows], diagnosis_window=min(WINDOWS[1], WINDOWS[setting.windows - 1]))
    reader, begin = PageReader(is_wanted), time.time()
    recordings = [recording(name, setting) for name in PLAYED]
    for one in recordings:  # what all engines share, libraries included, is not theirs
        first = Watched(0, one, config, reader)
        for count in range(WARM_UP_POLLS):
            first.poll(count, begin)
    before = Usage.now().megabytes
    engines = [Watched(n, recordings[n % len(recordings)], config, reader) for n in range(setting.engines)]
    spent, lines = [], 0
    for count in range(setting.polls):
        for engine in engines:
            seconds, lines = engine.poll(count, begin)
            if count >= setting.polls // 2:
                spent.append(seconds)
    memory = Usage.now().megabytes - before
    collector = StatusCollector(lambda: [engine.status for engine in engines], windows=config.windows)
    started = time.thread_time()
    for _ in range(SCRAPES):
        collector.text(is_openmetrics=False)
    return Cost(
        poll=1e3 * sum(spent) / len(spent),
        scrape=1e3 * (time.thread_time() - started) / SCRAPES,
        memory=1e3 * memory / len(engines),
        lines=lines,
    )


def recording(name: str, setting: Setting) -> Recording:
    """Return a recorded trace with its pages' histograms as the setting wants them."""
    bodies = [scrape.body.decode().splitlines() for scrape in scrapes(TRACES / name) if scrape.body is not None]
    return Recording([list(reshaped(lines, setting)) for lines in bodies])


def reshaped(lines: Sequence[str], setting: Setting) -> Iterator[str]:
    """Yield the lines of a page without its last histograms, and with finer buckets: lines between, of the same value."""
    names = [line.split()[2] for line in lines if line.startswith("# TYPE") and line.endswith(" histogram")]
    dropped = () if setting.histograms is None else tuple(names[setting.histograms :])
    edge = 0.0
    for line in lines:
        if dropped and line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(dropped):
            continue
        bucket = _LE.search(line)
        last = edge
        edge = float(bucket[0]) if bucket else 0.0
        if bucket and edge != float("inf"):
            for part in range(1, setting.finer):
                yield _LE.sub(repr(last + (edge - last) * part / setting.finer), line)
        yield line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--polls", type=int, default=60)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 10, 100, 1000])
    options = parser.parse_args()
    polls = options.polls
    tables = {
        "engines": [(str(n), Setting(engines=n, polls=polls)) for n in options.engines],
        "windows": [(str(n), Setting(windows=n, polls=polls)) for n in range(1, len(WINDOWS) + 1)],
        "histograms": [
            *((str(n), Setting(histograms=n, polls=polls)) for n in (0, 10)),
            ("all", Setting(polls=polls)),
            *((f"all, {n} x buckets", Setting(finer=n, polls=polls)) for n in (2, 4)),
        ],
        "polls": [(str(n), Setting(polls=n)) for n in (12, 60, 360, 720)],
    }
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for title, rows in tables.items():
            print(f"{title:>20} {'poll ms':>9} {'scrape ms':>10} {'kB/engine':>10} {'lines':>6}")
            for name, setting in rows:
                cost = pool.submit(measured, setting).result()
                print(f"{name:>20} {cost.poll:9.2f} {cost.scrape:10.1f} {cost.memory:10.0f} {cost.lines:6}", flush=True)


if __name__ == "__main__":
    main()
