"""Poll one target: fetch its page, add it to what is known, say when to ask again.

A poll ends in a new immutable `TargetStatus`, whatever it met; whoever reads it does so without
waiting and in any thread.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from prefixwatch.config import Config
from prefixwatch.discovery import Target
from prefixwatch.fetch import Body, Fetcher, FetchError
from prefixwatch.outages import OutageLog
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.page.lines import NotAPage, PageError
from prefixwatch.page.reading import PageReading
from prefixwatch.snapshot import TargetSnapshot
from prefixwatch.targetwatch import EventFeed, Refused, TargetState, TargetWatch
from prefixwatch.turns import Turns

_log = logging.getLogger(__name__)

BACKOFF = 1.5
FAST_RETRIES = 3
"""So many failed polls in a row come at the usual interval: an engine that restarts is back soon."""

RELEASE_SECONDS = 600.0
"""How often a target that did not answer /version is asked again."""

JITTER = 0.02
"""By which share of it an interval is made longer or shorter, so that not all polls come to fall on one beat."""

LARGE_PAGE = 2 * 2**20
"""A page with more bytes, which no engine has, is read in a thread, so that it delays no poll of another target."""

Jitter = Callable[[float, float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """What is known of a target after a poll. Times in unix seconds, None: never.

    `is_up` None: not polled yet. `errors`: failed polls by reason. `is_stale`: too many polls were
    missed, what is known of the engines is no longer true.
    """

    state: TargetState
    is_up: bool | None
    is_loading: bool
    is_stale: bool
    duration: float | None
    last_success: float | None
    began: float
    errors: Mapping[str, int]

    def snapshot(self, seconds: float) -> TargetSnapshot:
        """Return the figures of the last `seconds`; a stale target has no engines."""
        state = replace(self.state, engines=()) if self.is_stale else self.state
        return state.snapshot(seconds, is_up=bool(self.is_up))


def steady_clock() -> Callable[[], float]:
    """Return a clock in unix seconds that no change of the system's time moves."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


def watch_of(target: Target, config: Config, *, feed: EventFeed | None = None) -> TargetWatch:
    """Return a watch that sees a target as the exporter does. `feed`: its engines' cache events."""
    return TargetWatch(
        target.name,
        spans=config.windows,
        labels=target.labels,
        thresholds=config.thresholds,
        diagnosed=config.diagnosis_window,
        hold_seconds=config.diagnosis_hold,
        feed=feed,
    )


class TargetPoller:
    """Poll one target; `watch` sees its pages, `status` is what is known, in windows of `spans`.

    `clock` gives the time of readings and must not jump; `wall` is the system's time, which others
    compare `last_success` with. Pollers that share `turns` take turns at working on their pages.
    """

    def __init__(
        self,
        target: Target,
        config: Config,
        fetcher: Fetcher,
        reader: PageReader,
        *,
        watch: TargetWatch,
        spans: Collection[float | None],
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
        jitter: Jitter = random.uniform,
        turns: Turns | None = None,
    ) -> None:
        self.target = target
        self._config = config
        self._fetcher = fetcher
        self._reader = reader
        self._clock, self._wall, self._jitter = clock, wall, jitter
        self._interpreter = Interpreter()
        self._watch, self._spans = watch, spans
        self._turns = turns or Turns()
        self._errors: Counter[str] = Counter()
        self._outages = OutageLog(target.name, _log)
        self._missed = 0
        self._last_success: float | None = None
        self._release: str | None = None
        self._release_asked = float("-inf")
        self._duration: float | None = None
        self._is_loading = False
        self._began = wall()
        self.status = self._status(watch.state(spans))

    @property
    def is_polled(self) -> bool:
        """Whether a first poll has ended, whatever its result."""
        return self._duration is not None

    async def poll(self) -> None:
        """Poll once and publish the result. Raises nothing but cancellation."""
        started = self._clock()
        state = None
        try:
            state = await self._poll(started)
        except (FetchError, Refused) as error:
            self._failed(error.kind, str(error), may_be_loading=getattr(error, "may_be_loading", False))
        except PageError as error:
            self._failed("not_metrics" if isinstance(error, NotAPage) else "broken_page", str(error))
        except Exception:  # noqa: BLE001  a fault of ours must not end the polling of other targets
            self._failed_inside()
        else:
            self._succeeded()
        self._duration = self._clock() - started
        self.status = self._status(state or self._last_state())

    async def _poll(self, started: float) -> TargetState:
        body = await self._fetcher.page(self.target.address)
        if self._missed or (self._release is None and started - self._release_asked > RELEASE_SECONDS):
            self._release_asked = started
            self._release = await self._fetcher.release(self.target.address)
        large = None
        if len(body.content) > LARGE_PAGE:
            # A reader of its own: the shared one is for one thread.
            large = await asyncio.to_thread(self._interpreted, PageReader(is_wanted), body, started)

        def work() -> TargetState:
            self._watch.add(large or self._interpreted(self._reader, body, started))
            return self._watch.state(self._spans)

        return await self._turns.do(work)

    def _interpreted(self, reader: PageReader, body: Body, started: float) -> PageReading:
        page = reader.read(body.content, is_openmetrics=body.is_openmetrics)
        if page.is_cut:
            missing = "# EOF" if body.content.endswith(b"\n") else "the end of its last line"
            raise FetchError("cut_off", f"the page ends in the middle: {missing} is missing")
        return self._interpreter.interpret(page, time=started, release=self._release)

    def delay(self) -> float:
        """Return how long to wait from the start of the last poll to the next, in seconds."""
        interval = float(self._config.poll_interval)
        slower = max(0, self._missed - FAST_RETRIES)
        if slower:
            slowest = max(interval, self._config.max_backoff)
            interval = min(interval * BACKOFF ** min(slower, 32), slowest)
        return interval * self._jitter(1 - JITTER, 1 + JITTER)

    def _succeeded(self) -> None:
        self._outages.note(self._clock(), "target is back", is_up=True, missed_polls=self._missed)
        self._missed, self._is_loading = 0, False
        self._last_success = self._wall()

    def _failed(self, kind: str, message: str, *, may_be_loading: bool = False) -> None:
        self._errors[kind] += 1
        self._watch.fail(message)
        self._is_loading = may_be_loading and self._last_success is None
        words = "target has not answered yet: still loading?" if self._is_loading else "target cannot be used"
        self._outages.note(self._clock(), words, is_up=False, reason=kind, error=message)
        self._missed += 1

    def _failed_inside(self) -> None:
        """Note a fault of ours, with its traceback."""
        _log.exception("poll failed inside the exporter", extra={"target": self.target.name})
        self._failed("internal", "a fault of the exporter; see its log")

    def _last_state(self) -> TargetState:
        """Return what is known after a failed poll: what was known before, unless the failure took it away."""
        try:
            return self._watch.state(self._spans)
        except Exception:  # noqa: BLE001  counted and logged when it made the poll fail
            return replace(self.status.state, error=self._watch.error)

    def _status(self, state: TargetState) -> TargetStatus:
        return TargetStatus(
            state=state,
            is_up=not self._missed if self.is_polled else None,
            is_loading=self._is_loading,
            is_stale=self._missed >= self._config.stale_after_polls,
            duration=self._duration,
            last_success=self._last_success,
            began=self._began,
            errors=dict(self._errors),
        )
