"""Stand-in engines behind a network that fails at random, polled in simulated time by the exporter's own poller."""

import gc
import heapq
from collections import Counter
from pathlib import Path
from random import Random

from faults.checking import Checks
from faults.soakedline import SCENARIO_NAMES, TIMEOUT, Line
from faults.truth import counts_of
from prefixwatch.config import Config, Duration
from prefixwatch.demo.offline import EPOCH
from prefixwatch.demo.scenarios import SCENARIOS
from prefixwatch.discovery import Target
from prefixwatch.fetch import Address
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.poller import MIN_PAUSE
from prefixwatch.targetpoller import TargetPoller, watch_of

QUIET_SECONDS = 45.0
"""How long nothing fails, on average."""

# How often each fault comes, beside the others; and for how long, in seconds, where it lasts.
FAULTS: dict[str, tuple[int, tuple[float, float]]] = {
    "killed": (4, (0.0, 0.0)),
    "refuses": (2, (1.0, 20.0)),
    "hangs": (3, (1.0, 30.0)),
    "500": (3, (1.0, 20.0)),
    "HTML": (2, (1.0, 10.0)),
    "cut anywhere": (4, (1.0, 8.0)),
    "late": (3, (1.0, 15.0)),
    "cache reset": (2, (0.0, 0.0)),
    "sleeps": (1, (3.0, 10.0)),
    "other traffic": (4, (0.0, 0.0)),
    "taken out and back": (2, (0.0, 0.0)),
    "exporter's clock": (2, (0.0, 0.0)),
    "engine's clock": (1, (0.0, 0.0)),
    "another engine": (1, (2.0, 12.0)),
}


class Soak:
    """Run it, then read `checks`, `faults`, `reasons` (of failed polls), and `megabytes`, one a minute."""

    def __init__(self, *, seed: int, engines: int, period: float, quiet_seconds: float = QUIET_SECONDS) -> None:
        windows = (Duration(60), Duration(300), Duration(1200))
        self.config = Config(
            poll_interval=Duration(period), poll_timeout=Duration(TIMEOUT), windows=windows,
            diagnosis_window=windows[1],
        )  # fmt: skip
        self.random = Random(seed)
        self.now = EPOCH + 30.0
        self.faults: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.polls = self.kept = 0
        self.megabytes: list[float] = []
        self._reader = PageReader(is_wanted)
        self._lines = [
            Line(f"engine-{i}:8000", seed=1000 * seed + 10 * i, keep=1500.0, clock=lambda: self.now)
            for i in range(engines)
        ]
        self._wall_offset = 0.0
        self._quiet = quiet_seconds
        self.checks = Checks(self.config)
        self._pollers = {line.name: self._poller(line) for line in self._lines}

    async def run(self, *, seconds: float) -> None:
        """Poll every line for so long."""
        begin, end = self.now, self.now + seconds
        queue = [(self.now + self.random.random(), index) for index in range(len(self._lines))]
        heapq.heapify(queue)
        quiet_until = [self.now + self.random.expovariate(1 / self._quiet) for _ in self._lines]
        while queue[0][0] < end:
            self.now, index = heapq.heappop(queue)
            line = self._lines[index]
            self._go_on(line, quiet_until, index)
            started = self.now
            await self._poll(line)
            pause = max(line.took + MIN_PAUSE, self._pollers[line.name].delay())
            heapq.heappush(queue, (started + pause, index))
            if (self.now - begin) // 60 > len(self.megabytes):
                self.megabytes.append(_megabytes())
        self.megabytes.append(_megabytes())

    def memory_growth(self) -> float:
        """Return by which share memory grew between the middle and the end."""
        half = self.megabytes[len(self.megabytes) // 2]
        return (self.megabytes[-1] - half) / half

    def _poller(self, line: Line) -> TargetPoller:
        target = Target(name=line.name, address=Address(url=f"http://{line.name}/metrics"), labels={})
        return TargetPoller(
            target, self.config, line, self._reader,
            watch=watch_of(target, self.config), spans=self.config.windows, clock=lambda: self.now,
            wall=lambda: self.now + self._wall_offset, jitter=self.random.uniform,
        )  # fmt: skip

    def _go_on(self, line: Line, quiet_until: list[float], index: int) -> None:
        """Begin and end faults."""
        if line.fault and self.now >= line.fault_ends:
            if line.fault == "sleeps":
                line.standin.sleep(0)
            line.fault = None
            quiet_until[index] = self.now + self.random.expovariate(1 / self._quiet)
        if line.fault or self.now < quiet_until[index] or not line.standin.is_up:
            return
        name = self.random.choices(list(FAULTS), [often for often, _ in FAULTS.values()])[0]
        self.faults[name] += 1
        # Between two polls, not at one of them.
        line.standin.advance(max(line.standin.now, self.now - EPOCH - self.random.uniform(0.0, 0.9)))
        line.fault, line.fault_ends = name, self.now + self.random.uniform(*FAULTS[name][1])
        match name:
            case "killed":
                line.standin.restart(down_seconds=self.random.choice([0.2, 3.0, 25.0]))
            case "cache reset":
                line.standin.reset_prefix_cache(reset_running_requests=True)
            case "sleeps":
                line.standin.sleep(1)
            case "other traffic":
                line.standin.switch(SCENARIOS[self.random.choice(SCENARIO_NAMES)])
            case "taken out and back":
                self._pollers[line.name] = self._poller(line)
            case "exporter's clock":
                self._wall_offset += self.random.choice([-3600.0, 3600.0])
            case "engine's clock":
                line.shift_clock()

    async def _poll(self, line: Line) -> None:
        poller = self._pollers[line.name]
        errors = poller.status.errors
        await poller.poll()
        status = poller.status
        self.polls += 1
        new = [reason for reason, count in status.errors.items() if count > errors.get(reason, 0)]
        self.reasons.update(new)
        if not new:
            self.kept += 1
            line.truth.accept(self.now, line.process, counts_of(line.sent), born=line.born)
        self.checks.check(line, status, reason=new[0] if new else None, wall=self.now + self._wall_offset)


def _megabytes() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20
