"""Targets under watch: who answers at an address, and its engines' histories.

Time is passed in. What cannot be trusted moves no baseline: a page that lacks counters it had
before, one read out of order, one of several engines that answer on an address in turn.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from prefixwatch.diagnosis import Hold, Thresholds
from prefixwatch.enginestate import EngineState
from prefixwatch.eventchannel import ChannelStatus
from prefixwatch.figures.events import EventTally
from prefixwatch.page.caveats import Era
from prefixwatch.page.reading import PageReading, Reading
from prefixwatch.processes import Processes, Verdict
from prefixwatch.snapshot import TargetSnapshot
from prefixwatch.watch import EngineWatch

ACCEPT_AFTER = 3
"""Pages in a row that lack what was there before, until that counts as the engine's new shape."""

MAX_ENGINES = 256
"""So many engines a page may have: with more, some label is taken for an engine's that has no bound."""

MAX_COUNTERS = 1000
"""So many counters a page may have of one engine: vLLM has about 150."""

SEVERAL_ENGINES = (
    "several engines answer on this address in turn (a load-balanced Service?): watch each pod's own address"
)


class Refused(Exception):
    """A page that was read, and cannot be used. `kind` is one word for a metric's label."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class EventFeed(Protocol):
    """Where the engines' cache events come from. `lock` is to be held while using the tallies."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Keep the tallies as they are."""

    def tallies(self) -> Mapping[str, EventTally]:
        """Return the tally of each engine that events came from, by its rank."""

    def status(self) -> Sequence[ChannelStatus]:
        """Return what is known of each endpoint."""


class TargetWatch:
    """One target: who answers there, and its engines' histories.

    `spans`: the windows that will be asked for, in seconds; empty keeps every reading. `diagnosed`:
    the one whose diagnosis changes only after another has lasted `hold_seconds`, and is made anew once
    in a quarter of that time, or at once where it must not wait; None: none is held.
    `feed`: the engines' cache events, None where they are not watched.
    """

    def __init__(
        self,
        target: str,
        *,
        spans: Collection[float] = (),
        labels: Mapping[str, str] | None = None,
        thresholds: Thresholds | None = None,
        diagnosed: float | None = None,
        hold_seconds: float = 0.0,
        feed: EventFeed | None = None,
    ) -> None:
        self.target = target
        self.labels = dict(labels or {})
        self.engines: dict[tuple[str, str], EngineWatch] = {}
        self.page: PageReading | None = None
        self.error: str | None = None
        self._spans = spans
        self._thresholds = thresholds or Thresholds()
        self._diagnosed = diagnosed
        self._hold_seconds = hold_seconds
        self._feed = feed
        self._processes = Processes()
        self._incomplete = 0
        self._lacking: dict[tuple[str, str], set[str]] = {}

    def add(self, page: PageReading) -> None:
        """Take what a page says. Raises `Refused` for one that moves no baseline."""
        if self.page is not None and page.time <= self.page.time:
            raise Refused("time_went_back", f"time went from {self.page.time:.3f} to {page.time:.3f}")
        _refuse_unbounded(page)
        readings = {_key(reading): reading for reading in page.engines}
        has_fallen = any(engine.has_fallen(readings[key]) for key, engine in self.engines.items() if key in readings)
        verdict = self._processes.judge(page, has_fallen=has_fallen)
        if verdict is Verdict.SEVERAL:
            self.engines.clear()
            self._lacking.clear()
            self.page = page
            raise Refused("several_engines", SEVERAL_ENGINES)
        if verdict is Verdict.SAME:
            self._refuse_incomplete(readings)
        else:
            self._lacking.clear()
        self._incomplete = 0
        self.page, self.error = page, page.why_empty
        for key in self.engines.keys() - readings.keys():
            del self.engines[key]
        for key in self._lacking.keys() - readings.keys():
            del self._lacking[key]
        with self._lock:
            self._add(page, readings, verdict)

    def _add(self, page: PageReading, readings: Mapping[tuple[str, str], Reading], verdict: Verdict) -> None:
        """Give each engine its reading, and its cache events where there are any."""
        tallies = self._feed.tallies() if self._feed else {}
        for key, reading in readings.items():
            engine = self.engines.get(key)
            if engine is None or engine.history.names > 2 * MAX_COUNTERS:
                # Where labels change all the time, a history would grow without end: it begins anew.
                engine = EngineWatch(self._spans, thresholds=self._thresholds, hold=Hold(self._hold_seconds))
                self.engines[key] = engine
            engine.tally = tallies.get(reading.engine)
            if engine.tally is None and len(tallies) == len(page.engines) == 1:
                # One engine, one publisher: whatever rank each of them says it is.
                engine.tally = next(iter(tallies.values()))
            engine.add(
                reading,
                # A page of several processes states no epoch: there each engine's own counters tell.
                restarted=verdict is Verdict.RESTARTED and (page.epoch != (None, None) or engine.has_fallen(reading)),
                counts=verdict is not Verdict.UNCLEAR,
                process_start=page.epoch[1],
            )

    @property
    def _lock(self) -> AbstractContextManager[object]:
        return self._feed.lock if self._feed else nullcontext()

    @property
    def time(self) -> float:
        """When the newest page was read, unix seconds; 0 before the first."""
        return self.page.time if self.page else 0.0

    @property
    def era(self) -> Era:
        """The releases that the newest page may come from."""
        return self.page.era if self.page else Era()

    def fail(self, error: str) -> None:
        """Note that a poll gave nothing to read, and why."""
        self.error = error

    def state(self, spans: Collection[float | None] = (None,)) -> "TargetState":
        """Return the target as it stands, with windows of `spans` (None: everything seen)."""
        with self._lock:
            return TargetState(
                target=self.target,
                labels=self.labels,
                page=self.page,
                error=self.error,
                engines=tuple(
                    self.engines[key].state(spans, self.era, diagnosed=self._diagnosed) for key in sorted(self.engines)
                ),
                channels=tuple(self._feed.status()) if self._feed else (),
            )

    def _refuse_incomplete(self, readings: Mapping[tuple[str, str], Reading]) -> None:
        """Refuse a page that lacks what the last one had: it was cut off, or is being written.

        Where that goes on it is taken for the engine's new shape, whose history begins anew, and once
        more where what was lacking comes back: else a window would hold some counters for all of its
        time, and others not.
        """
        for key, engine in list(self.engines.items()):
            reading = readings.get(key)
            missing = engine.lacks(reading) if reading else ["all of an engine's counters"]
            if missing and self._incomplete + 1 < ACCEPT_AFTER:
                self._incomplete += 1
                raise Refused("incomplete", f"the page lacks {missing[0]}, which was there before: was it cut off?")
            lacking = self._lacking.get(key, set())
            back = {name for name in lacking if reading and name in reading.counters}
            if missing or back:
                del self.engines[key]
                self._lacking[key] = lacking.union(missing) - back


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """One target at one moment, immutable. `page`: the newest that could be read, None before it."""

    target: str
    labels: Mapping[str, str]
    page: PageReading | None
    error: str | None
    engines: tuple[EngineState, ...]
    channels: tuple[ChannelStatus, ...] = ()

    def snapshot(self, seconds: float | None = None, *, is_up: bool = True) -> TargetSnapshot:
        """Return the target's figures over the last `seconds`, or over everything seen."""
        page = self.page
        engines = tuple(engine.figures(seconds) for engine in self.engines)
        caveats = [str(caveat) for caveat in page.caveats] if page else []
        for engine in engines:
            caveats.extend(caveat for caveat in engine.caveats if caveat not in caveats)
        return TargetSnapshot(
            target=self.target,
            labels=self.labels,
            is_up=is_up,
            dialect=page.dialect if page else None,
            release=page.release if page else None,
            caveats=tuple(caveats),
            engines=engines,
            error=self.error,
        )


def _refuse_unbounded(page: PageReading) -> None:
    """Refuse a page with more engines, or counters of one, than any deployment has."""
    if len(page.engines) > MAX_ENGINES:
        raise Refused(
            "too_many_engines",
            f"{len(page.engines)} engines on one page, more than {MAX_ENGINES}: is a label of it without bound?",
        )
    for reading in page.engines:
        if len(reading.counters) > MAX_COUNTERS:
            raise Refused(
                "too_many_counters",
                f"{len(reading.counters)} counters of one engine, more than {MAX_COUNTERS}: is a label without bound?",
            )


def _key(reading: Reading) -> tuple[str, str]:
    return reading.model_name, reading.engine
