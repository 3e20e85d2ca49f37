"""One target of a soak: a stand-in, what is wrong with the way to it, and the truth."""

import re
from collections.abc import Callable
from random import Random

from edge.engines import HTML
from faults.truth import Truth
from prefixwatch.demo.offline import EPOCH
from prefixwatch.demo.scenarios import SCENARIOS
from prefixwatch.demo.standin import StandIn
from prefixwatch.fetch import Address, Body, FetchError

TIMEOUT = 4.0
SCENARIO_NAMES = tuple(name for name in SCENARIOS if name != "two_engines")
_CREATED = re.compile(rb"(?m)^(\S*_created(?:\{.*\})?|process_start_time_seconds) (\S+)$")
_BORN = re.compile(rb"(?m)^vllm:prompt_tokens_created\{.*\} (\S+)$")


class Line:
    """A target, and the fetcher of its poller."""

    def __init__(self, name: str, *, seed: int, keep: float, clock: Callable[[], float]) -> None:
        self.random = Random(seed)
        self.name, self._keep, self._clock = name, keep, clock
        self.standin = _standin(self.random.choice(SCENARIO_NAMES), seed, began=EPOCH)
        self.stranger = _standin("healthy", seed + 1, began=EPOCH - 500.0)
        self.truth = Truth(self.standin)
        self.fault: str | None = None
        self.fault_ends = 0.0
        self.took = 0.0
        self.cut_at = float("-inf")
        self.sent = b""
        self.process: tuple[object, ...] = ()
        self.born = 0.0
        self._shift = (0, 0.0)
        self._boots = 0

    @property
    def now(self) -> float:
        """The simulated time, in unix seconds."""
        return self._clock()

    async def release(self, address: Address) -> str | None:
        return self.standin.release

    async def page(self, address: Address) -> Body:
        """Return what the address answers now. Raises `FetchError` as the exporter's own fetcher does."""
        now = self._clock()
        late = self.random.uniform(0, TIMEOUT) if self.fault == "late" else 0.0
        self.took = TIMEOUT if self.fault == "hangs" else late
        self.standin.advance(now + late - EPOCH)
        self.stranger.advance(now - EPOCH)
        self.truth.note(now, keep=self._keep)
        if self.fault == "hangs":
            raise FetchError("timeout", "no whole answer")
        if self.fault == "refuses" or (self.fault != "another engine" and not self.standin.is_up):
            raise FetchError("connection", "no connection", may_be_loading=True)
        if self.fault == "500":
            raise FetchError("http_5xx", "HTTP 500")
        if self.fault == "HTML":
            return Body(content=HTML, is_openmetrics=False)
        self.sent = self._whole() if self.fault != "cut anywhere" else self._cut(self._whole())
        return Body(content=self.sent, is_openmetrics=False)

    def _whole(self) -> bytes:
        is_strange = self.fault == "another engine"
        standin = self.stranger if is_strange else self.standin
        if self._boots != self.standin.restarts:
            self._boots, self._shift = self.standin.restarts, (0, 0.0)
        page = standin.page()
        self.born = float(_BORN.findall(page)[0])
        shifts, seconds = self._shift
        if shifts and not is_strange:
            page = _CREATED.sub(lambda match: b"%b %.3f" % (match[1], float(match[2]) + seconds), page)
        self.process = (is_strange, standin.restarts, shifts if not is_strange else 0)
        return page

    def _cut(self, page: bytes) -> bytes:
        self.cut_at = self.now
        at = self.random.randrange(len(page))
        return page[: page.index(b"\n", at) + 1] if self.random.random() < 0.5 else page[:at]

    def shift_clock(self) -> None:
        """Let the engine's own times jump: they are other numbers from now on, its counters are not."""
        count, seconds = self._shift
        self._shift = count + 1, seconds + self.random.choice([-1, 1]) * self.random.uniform(10, 7200)


def _standin(scenario: str, seed: int, *, began: float) -> StandIn:
    standin = StandIn(SCENARIOS[scenario], seed=seed, half_time=300.0, unix=lambda now: began + now)
    standin.start()
    return standin
