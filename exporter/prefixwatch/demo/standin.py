"""The stand-in: a server with its engines, its page and its traffic, in simulated time."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from prefixwatch.demo.config import EngineConfig
from prefixwatch.demo.engine import Engine
from prefixwatch.demo.metrics import Page
from prefixwatch.demo.pool import CacheEvent, Cleared, Removed
from prefixwatch.demo.releases import LATEST
from prefixwatch.demo.request import Finished, Prompt
from prefixwatch.demo.scenarios import Scenario
from prefixwatch.demo.traffic import Shape, Traffic

_LOADING_SECONDS = 20.0
_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """One cached block that was evicted: when, by which engine, and its hash."""

    at: float
    engine: int
    hash: bytes


class StandIn:
    """Drive engines with a scenario's traffic; ``advance`` the time and read the ``page``.

    ``unix`` maps simulated to unix seconds. Traffic starts with ``start``; half time comes
    ``half_time`` seconds later. ``down_seconds`` is how long a restarted server does not answer.
    ``on_event`` receives every cache event with its engine. Of the truth the last ``kept``
    requests and evictions stay (None: all).
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 1,
        release: str = LATEST,
        model_name: str = "tiny",
        half_time: float = 30.0,
        down_seconds: float = 3.0,
        unix: Callable[[float], float] = lambda now: now,
        on_event: Callable[[int, CacheEvent], None] | None = None,
        kept: int | None = 1000,
        kv_cache_metrics_sample: float | None = 1.0,
    ) -> None:
        self.scenario = scenario
        self.release = release
        self.seed = seed
        self.now = 0.0
        self.unix = unix
        self.requests: deque[Finished] = deque(maxlen=kept)
        self.evictions: deque[Evicted] = deque(maxlen=kept)
        self.clears = self.restarts = 0
        self._model_name = model_name
        self._half_time = half_time
        self._down_seconds = down_seconds
        self._on_event = on_event
        self._sample = kv_cache_metrics_sample
        self._up_again = _NEVER
        self._started = 0.0
        self._traffic: Traffic | None = None
        self._next_arrival = self._next_half_time = _NEVER
        self._is_late = self._wants_reset = False
        self._turn = 0
        self._boot(loaded_before=_LOADING_SECONDS)

    @property
    def is_up(self) -> bool:
        """Whether the server answers; not while it restarts."""
        return self._up_again == _NEVER

    @property
    def in_flight(self) -> int:
        """Requests sent and not finished."""
        return sum(engine.running + engine.waiting for engine in self.engines)

    def start(self, *, shape: Shape | None = None) -> None:
        """Let traffic begin now."""
        self._traffic = Traffic(self.scenario, seed=self.seed, shape=shape or Shape())
        self._is_late = self._wants_reset = False
        self._next_arrival = self.now if self._traffic.rate else _NEVER
        self._next_half_time = self.now + self._half_time

    def stop(self) -> None:
        """Let no more requests arrive; those in flight go on."""
        self._next_arrival = self._next_half_time = _NEVER

    def switch(self, scenario: Scenario) -> None:
        """Go over to another scenario; other flags or another pool restart the engines at once."""
        is_same_server = (
            self._config(scenario) == self._config(self.scenario) and scenario.engines == self.scenario.engines
        )
        self.scenario = scenario
        if not is_same_server or not self.is_up:
            self._restart(down_seconds=0.0)
        self.start()

    def send(self, prompt: Prompt) -> None:
        """Send one request now, to the engine with the least to do."""
        order = range(self._turn, self._turn + len(self.engines))
        self._turn += 1
        least = min(
            (index % len(self.engines) for index in order),
            key=lambda index: 4 * self.engines[index].waiting + self.engines[index].running,
        )
        self.engines[least].submit(prompt, sent=self.now)

    def advance(self, until: float) -> None:
        """Run to ``until``: steps, arrivals, and what happens at half time."""
        while True:
            due = min(self._next_arrival, self._next_half_time, self._up_again)
            if due > until:
                break
            self._run_engines(due)
            self._handle_due(due)
        self._run_engines(until)

    def page(self) -> bytes:
        """Return /metrics as it is now."""
        return self._page.render()

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Empty the caches of all engines; False where requests still held blocks."""
        done = [engine.reset_prefix_cache(reset_running_requests=reset_running_requests) for engine in self.engines]
        self._collect_events()
        return all(done)

    def sleep(self, level: int) -> None:
        """Put all engines to sleep at a level, or wake them with level 0."""
        for engine in self.engines:
            engine.sleep(level) if level else engine.wake_up()
        self._page.record_sleep(level)
        self._collect_events()

    def restart(self, *, down_seconds: float) -> None:
        """Kill the server: what is in flight is lost, and for ``down_seconds`` nothing answers or arrives."""
        self._restart(down_seconds=down_seconds)
        self._next_arrival = max(self._next_arrival, self.now + down_seconds)

    def _config(self, scenario: Scenario) -> EngineConfig:
        return scenario.config(self.release, kv_cache_metrics_sample=self._sample)

    def _boot(self, *, loaded_before: float) -> None:
        config, now = self._config(self.scenario), self.now
        self.engines = [Engine(config, seed=self.seed + 100 * index, now=now) for index in range(self.scenario.engines)]
        self._page = Page(
            config,
            started=self.unix(self._started) - loaded_before,
            created=self.unix(now),
            engines=len(self.engines),
            release=self.release,
            model_name=self._model_name,
        )

    def _restart(self, *, down_seconds: float) -> None:
        self.restarts += 1
        self._started = self.now
        if down_seconds:
            self._up_again = self.now + down_seconds
            self.engines = []
        else:
            self._up_again = _NEVER
            self._boot(loaded_before=0.0)

    def _handle_due(self, due: float) -> None:
        if due >= self._up_again:
            self._up_again = _NEVER
            self._boot(loaded_before=0.0)
            self._next_arrival = max(self._next_arrival, due)
        elif due >= self._next_half_time:
            self._pass_half_time()
        else:
            self._arrive()

    def _pass_half_time(self) -> None:
        # Restarts and resets come again after every two halves; a changed template stays.
        self._next_half_time += 2 * self._half_time
        self._is_late = True
        if self.scenario.half_time == "restart":
            self.restart(down_seconds=self._down_seconds)
        elif self.scenario.half_time == "reset":
            self._wants_reset = True

    def _arrive(self) -> None:
        if self._traffic is None:
            return
        prompt = self._traffic.next_prompt(is_late=self._is_late)
        clients = self.scenario.clients
        if clients is None or self.in_flight < clients:
            self.send(prompt)
        self._next_arrival += self._traffic.next_gap()

    def _run_engines(self, until: float) -> None:
        for index, engine in enumerate(self.engines):
            for step in engine.advance(until):
                self._page.record(step, engine=index)
                self.requests.extend(step.finished)
        self.now = until
        self._collect_events()
        if self._wants_reset and self.reset_prefix_cache():
            # A reset finds no room while a request holds blocks: it is asked for again.
            self._wants_reset = False

    def _collect_events(self) -> None:
        for index, engine in enumerate(self.engines):
            for event in engine.drain_events():
                if self._on_event is not None:
                    self._on_event(index, event)
                if isinstance(event, Removed):
                    self.evictions.append(Evicted(at=event.at, engine=index, hash=event.hash))
                elif isinstance(event, Cleared):
                    self.clears += 1
