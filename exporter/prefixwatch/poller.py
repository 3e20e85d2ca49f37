"""Poll many targets side by side, and publish what is known of each.

One task a target. A poll ends in a new immutable `TargetStatus`, whatever it met; whoever reads
statuses does so without waiting and in any thread.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from prefixwatch.config import Config
from prefixwatch.discovery import Discovery, Target
from prefixwatch.fetch import Fetcher, FetchError, session
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import NotAPage, PageError, PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.snapshot import TargetSnapshot
from prefixwatch.watch import Refused, TargetState, TargetWatch

_log = logging.getLogger(__name__)

BACKOFF = 1.5
FAST_RETRIES = 3
"""So many failed polls in a row come at the usual interval: an engine that restarts is back soon."""

RELEASE_SECONDS = 600.0
"""How often a target that did not answer /version is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """What is known of a target after a poll. Times in unix seconds, None: never.

    `errors`: failed polls by reason. `is_stale`: too many polls were missed, what is known of the
    engines is no longer true.
    """

    state: TargetState
    is_up: bool
    is_loading: bool
    is_stale: bool
    duration: float | None
    last_success: float | None
    began: float
    errors: Mapping[str, int]

    def snapshot(self, seconds: float) -> TargetSnapshot:
        """Return the figures of the last `seconds`; a stale target has no engines."""
        state = replace(self.state, engines=()) if self.is_stale else self.state
        return state.snapshot(seconds, is_up=self.is_up)


def steady_clock() -> Callable[[], float]:
    """Return a clock in unix seconds that no change of the system's time moves."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


class TargetPoller:
    """Poll one target; keeps what it knows in `status`."""

    def __init__(
        self, target: Target, config: Config, fetcher: Fetcher, reader: PageReader, clock: Callable[[], float]
    ) -> None:
        self.target = target
        self._config = config
        self._fetcher = fetcher
        self._reader = reader
        self._clock = clock
        self._interpreter = Interpreter()
        self._watch = TargetWatch(target.name, spans=config.windows, labels=target.labels)
        self._errors: Counter[str] = Counter()
        self._missed = 0
        self._last_success: float | None = None
        self._release: str | None = None
        self._release_asked = float("-inf")
        self._duration: float | None = None
        self._is_loading = False
        self._began = clock()
        self._is_polled = False
        self.status = self._status()

    @property
    def is_polled(self) -> bool:
        """Whether a first poll has ended, whatever its result."""
        return self._is_polled

    @property
    def missed(self) -> int:
        """How many polls in a row gave nothing to use."""
        return self._missed

    async def poll(self) -> None:
        """Poll once and publish the result. Raises nothing but cancellation."""
        started = self._clock()
        try:
            await self._poll(started)
        except (FetchError, Refused) as error:
            self._failed(error.kind, str(error), may_be_loading=getattr(error, "may_be_loading", False))
        except PageError as error:
            self._failed("not_metrics" if isinstance(error, NotAPage) else "broken_page", str(error))
        except Exception:  # noqa: BLE001  a fault of ours must not end the polling of other targets
            _log.exception("poll failed inside the exporter", extra={"target": self.target.name})
            self._failed("internal", "a fault of the exporter; see its log")
        else:
            self._succeeded()
        self._duration = self._clock() - started
        self._is_polled = True
        self.status = self._status()

    async def _poll(self, started: float) -> None:
        body = await self._fetcher.page(self.target.address)
        if self._missed or (self._release is None and started - self._release_asked > RELEASE_SECONDS):
            self._release_asked = started
            self._release = await self._fetcher.release(self.target.address)
        page = self._reader.read(body.content, is_openmetrics=body.is_openmetrics)
        if page.is_cut:
            raise FetchError("cut_off", "the page ends in the middle")
        self._watch.add(self._interpreter.interpret(page, time=started, release=self._release))
        self._last_success = started

    def trends(self, seconds: float, count: int) -> dict[tuple[str, str], list[float | None]]:
        """Return each engine's token hit ratio in steps; to be called where the polls run."""
        return self._watch.trends(seconds, count)

    def delay(self) -> float:
        """Return how long to wait from the start of the last poll to the next, in seconds."""
        interval = float(self._config.poll_interval)
        slower = max(0, self._missed - FAST_RETRIES)
        if slower:
            interval = min(interval * BACKOFF**min(slower, 32), max(interval, self._config.max_backoff))
        return interval * random.uniform(0.98, 1.02)

    def _succeeded(self) -> None:
        if self._missed:
            _log.info("target is back", extra={"target": self.target.name, "missed_polls": self._missed})
        self._missed, self._is_loading = 0, False

    def _failed(self, kind: str, message: str, *, may_be_loading: bool = False) -> None:
        self._errors[kind] += 1
        self._watch.fail(message)
        self._is_loading = may_be_loading and self._last_success is None
        if not self._missed:
            words = "target has not answered yet: still loading?" if self._is_loading else "target cannot be used"
            _log.warning(words, extra={"target": self.target.name, "reason": kind, "error": message})
        self._missed += 1

    def _status(self) -> TargetStatus:
        return TargetStatus(
            state=self._watch.state(tuple(self._config.windows)),
            is_up=self._is_polled and not self._missed,
            is_loading=self._is_loading,
            is_stale=self._missed >= self._config.stale_after_polls,
            duration=self._duration,
            last_success=self._last_success,
            began=self._began,
            errors=dict(self._errors),
        )


class Poller:
    """Poll all targets of a configuration, as discovery finds them."""

    def __init__(self, config: Config, *, clock: Callable[[], float] | None = None) -> None:
        self._config = config
        self._clock = clock or steady_clock()
        self._reader = PageReader(is_wanted)
        self._pollers: dict[str, TargetPoller] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unseen_since: dict[str, float] = {}
        self.discovery = Discovery(config)

    @property
    def statuses(self) -> list[TargetStatus]:
        """What is known of every target now, in order of their names."""
        return [poller.status for _, poller in sorted(self._pollers.items())]

    def trends(self, seconds: float, count: int) -> dict[str, dict[tuple[str, str], list[float | None]]]:
        """Return the token hit ratio over the last `seconds` in `count` steps, by target and engine."""
        return {name: poller.trends(seconds, count) for name, poller in self._pollers.items()}

    @property
    def is_ready(self) -> bool:
        """Whether a round of polling has ended, whatever its result."""
        return self.discovery.is_done and all(poller.is_polled for poller in self._pollers.values())

    async def run(self) -> None:
        """Discover and poll until cancelled."""
        async with session() as shared:
            fetcher = Fetcher(
                shared, timeout=self._config.poll_timeout, max_bytes=self._config.max_page_bytes
            )
            try:
                while True:
                    self._reconcile(await self.discovery.targets(), fetcher)
                    await asyncio.sleep(self._config.discovery_interval)
            finally:
                tasks = list(self._tasks.values())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _reconcile(self, targets: Mapping[str, Target], fetcher: Fetcher) -> None:
        now = self._clock()
        for name, target in targets.items():
            known = self._pollers.get(name)
            if known is None or known.target != target:
                self._drop(name)
                poller = TargetPoller(target, self._config, fetcher, self._reader, self._clock)
                self._pollers[name] = poller
                self._tasks[name] = asyncio.create_task(self._keep_polling(poller))
            self._unseen_since.pop(name, None)
        for name in self._pollers.keys() - targets.keys():
            since = self._unseen_since.setdefault(name, now)
            if self._pollers[name].missed and now - since >= self._config.forget_after:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._pollers.pop(name, None)
        self._unseen_since.pop(name, None)
        task = self._tasks.pop(name, None)
        if task:
            task.cancel()

    async def _keep_polling(self, poller: TargetPoller) -> None:
        if len(self._pollers) > 1:  # spread the targets over the interval
            await asyncio.sleep(random.uniform(0, self._config.poll_interval))
        while True:
            started = self._clock()
            await poller.poll()
            await asyncio.sleep(max(0.05, started + poller.delay() - self._clock()))
