"""Engines under watch: readings go in, figures over any window come out.

Time is passed in. What cannot be trusted moves no baseline: a page that lacks counters it had
before, one read out of order, one of several engines that answer on an address in turn.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

from prefixwatch.diagnosis import Diagnosis, EventEvidence, Hold, Thresholds, diagnose
from prefixwatch.eventchannel import ChannelStatus
from prefixwatch.figures import eviction, ratios
from prefixwatch.figures.engine import NO_EVENTS, WindowFigures, may_retry, window_figures
from prefixwatch.figures.events import EventFigures, EventTally, event_figures
from prefixwatch.figures.figure import Absent
from prefixwatch.figures.history import History, Window
from prefixwatch.figures.requestlevel import LOST, RequestLevel, RequestWatch, lost_requests
from prefixwatch.figures.savings import COLUMNS, TokenCost, saving, token_cost
from prefixwatch.figures.standstill import Standstill
from prefixwatch.page.caveats import Era
from prefixwatch.page.reading import PageReading, Reading
from prefixwatch.processes import Processes, Verdict
from prefixwatch.snapshot import EngineFigures, TargetSnapshot

MIN_COVERAGE = 0.9
"""A window counts as covered from this share of its length on."""

ACCEPT_AFTER = 3
"""Pages in a row that lack what was there before, until that counts as the engine's new shape."""

SEVERAL_ENGINES = (
    "several engines answer on this address in turn (a load-balanced Service?): watch each pod's own address"
)
_RATE_SECONDS = 60.0
_FIT_SPAN = 100
_FIRST_DIAGNOSIS_SECONDS = 20.0
_WRITTEN = "own/written_tokens"
_SAVED = "own/prefill_saved_seconds"
_PEAKS = ("kv_usage", "requests_running", "requests_waiting")


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


@dataclass(slots=True)
class EngineWatch:
    """One engine's history. `spans`: the windows that will be asked for, in seconds."""

    spans: Collection[float]
    history: History = field(init=False)
    standstill: Standstill = field(default_factory=Standstill)
    requests: RequestWatch = field(init=False)
    last: Reading | None = None
    was_emptied: bool = False
    restarts: int = 0
    began: float | None = None
    cost: TokenCost | Absent = Absent("no interval was read yet")
    thresholds: Thresholds = Thresholds()
    hold: Hold = field(default_factory=lambda: Hold(0.0))
    polls: int = 0
    next_fit: int = 0
    tally: EventTally | None = None

    def __post_init__(self) -> None:
        self.history = History(self.spans)
        self.requests = RequestWatch(is_thorough=not self.spans)

    def lacks(self, reading: Reading) -> list[str]:
        """Return the counters that the last reading had and this one has not."""
        return sorted(self.last.counters.keys() - reading.counters.keys()) if self.last else []

    def has_fallen(self, reading: Reading) -> bool:
        """Say whether a counter of lookups or prompt tokens went down: a reset seen by value."""
        if self.last is None:
            return False
        names = (*(f"queried_{unit}" for unit in ratios.LOOKUP_UNITS), "prompt_tokens")
        # One that is missing has not fallen: the page may be cut off.
        return any(
            reading.counters[name] < self.last.counters.get(name, 0.0) for name in names if name in reading.counters
        )

    def add(
        self, reading: Reading, *, restarted: bool = False, counts: bool = True, process_start: float | None = None
    ) -> None:
        """Take a reading. `counts` False: a new baseline, nothing since the last one is known.

        `process_start`: unix seconds at which the process started that answered, where it says so.
        """
        last, self.last = self.last, reading
        restarted = restarted or (last is not None and _began_anew(last, reading))
        born = {
            key
            for key in reading.counters.keys() - last.counters.keys()
            if (created := reading.created.get(key.split("/le/")[0].removesuffix("/sum").removesuffix("/count")))
            and created > last.time
        } if last is not None else ()  # fmt: skip
        peaks = {name: reading.gauges[name] for name in _PEAKS if name in reading.gauges}
        grown = self.history.add(reading.time, reading.counters, peaks, restarted=restarted, born=born, counts=counts)
        if restarted or not counts:
            self.standstill.reset()
            self.was_emptied = False
        self.was_emptied = self.was_emptied or eviction.is_asleep(reading.gauges)
        self.standstill.observe(reading.time, grown, reading.counters, reading.gauges)
        if restarted and last is not None:
            self.restarts += 1
            ended = min(process_start or min(reading.created.values(), default=reading.time), reading.time)
            lost = lost_requests(self.history.window(_RATE_SECONDS, end=last.time), ended - last.time)
        else:
            lost = 0.0
        written = eviction.written_tokens(grown)
        added, ledger = self.requests.observe(grown, reading)
        added[LOST] = lost
        added[_WRITTEN] = 0.0 if isinstance(written, Absent) else written
        saved = saving(self.cost, added.get("own/cached_tokens", 0.0))
        added[_SAVED] = 0.0 if isinstance(saved, Absent) else saved.estimate
        self.history.accumulate(added, ledger)
        if self.tally is not None:
            began = process_start or min(reading.created.values(), default=None)
            self._take_events(self.tally, restarted_at=began if restarted and last is not None else None)
        self.began = reading.time if self.began is None else self.began
        self.polls += 1
        if self.polls >= self.next_fit:
            self.cost = token_cost(self.history.intervals(COLUMNS))
            self.next_fit = self.polls + 1 + min(self.polls, _FIT_SPAN) // 10

    def _take_events(self, tally: EventTally, *, restarted_at: float | None) -> None:
        """Take what cache events have added since the last reading."""
        assert self.last is not None
        tally.set_pool(self.last.config.num_gpu_blocks)
        if restarted_at is not None:
            tally.restarted(restarted_at)
        if tally.emptied_at is not None and tally.emptied_at > (self.began or 0.0):
            self.was_emptied = True
        self.history.accumulate(tally.settle())

    def event_figures(self, window: Window | None) -> EventFigures:
        """Return what cache events say of a window."""
        if self.tally is None or window is None or self.last is None:
            return NO_EVENTS
        filled = eviction.is_pool_filled(
            eviction.pool_tokens(self.last.config), self.last.counters, was_emptied=self.was_emptied
        )
        return event_figures(
            window.increases,
            distinct=self.tally.distinct_since(window.start),
            pool_blocks=self.last.config.num_gpu_blocks,
            sampling_rate=self.tally.sampling_rate,
            unknown_past=self.tally.unknown_past(is_pool_filled=None if isinstance(filled, Absent) else filled),
        )

    def trend(self, seconds: float, count: int, era: Era) -> list[float | None]:
        """Return the token hit ratio of the last `seconds` in `count` steps, oldest first."""
        ratio_of = [
            None if step is None else ratios.token_hit_ratio(step.increases, may_retry=may_retry(era))
            for step in self.history.steps(seconds, count)
        ]
        return [None if isinstance(value, Absent) else value for value in ratio_of]

    def steps(self, seconds: float | None, count: int, era: Era) -> list[WindowFigures]:
        """Return the figures of the last `seconds` (None: of everything seen) in `count` windows in a row."""
        whole = self.history.window(seconds)
        if whole is None or self.last is None:
            return []
        return [
            window_figures(self.last, step, level=self.requests.level(step), cost=self.cost, era=era)
            for step in self.history.steps(whole.seconds, count)
            if step is not None
        ]

    def state(self, spans: Collection[float | None], era: Era, *, diagnosed: float | None = None) -> "EngineState":
        """Return all there is to know of the engine now, for windows of `spans` (None: everything seen).

        `diagnosed`: the span whose diagnosis is held until another has lasted; None: none is.
        """
        assert self.last is not None
        wanted = {*spans} if diagnosed is None else {*spans, diagnosed}
        windows = {span: self.history.window(span) for span in wanted}
        state = EngineState(
            reading=self.last,
            windows=windows,
            levels={span: self.requests.level_later(window) for span, window in windows.items() if window is not None},
            events={span: self.event_figures(window) for span, window in windows.items()},
            emptied_at=self.tally.emptied_at if self.tally else None,
            sampling_rate=self.tally.sampling_rate if self.tally else None,
            era=era,
            frozen=self.standstill.reason,
            was_emptied=self.was_emptied,
            restarts=self.restarts,
            own=self.history.totals("own/"),
            began=self.began or 0.0,
            cost=self.cost,
            thresholds=self.thresholds,
        )
        if diagnosed is None:
            return state
        window, found = windows[diagnosed], state.figures(diagnosed).diagnosis
        if isinstance(found, Absent) or window is None or window.seconds < min(_FIRST_DIAGNOSIS_SECONDS, diagnosed):
            held: Diagnosis | Absent = Absent("too little was seen yet for a diagnosis")
        else:
            held = self.hold.update(self.last.time, found)
        return replace(state, held=held, diagnosed=diagnosed)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One engine at one moment, immutable: figures can be derived from it anywhere, any time.

    `windows` by the length asked for, None for everything seen; a value of None: fewer than two
    readings; `levels` gives the request level of those that are there, `events` what cache events
    say; `emptied_at`: when these last showed that the cache was cleared. `frozen`: why its counters
    count as frozen, if they do. `own`: the exporter's own counters since the watch `began` (unix
    seconds). `held`: the diagnosis that holds for the span `diagnosed`, where one is held.
    """

    reading: Reading
    windows: Mapping[float | None, Window | None]
    levels: Mapping[float | None, Callable[[], RequestLevel]]
    events: Mapping[float | None, EventFigures]
    emptied_at: float | None
    sampling_rate: float | None
    era: Era
    frozen: str | None
    was_emptied: bool
    restarts: int
    own: Mapping[str, float]
    began: float
    cost: TokenCost | Absent
    thresholds: Thresholds
    held: Diagnosis | Absent | None = None
    diagnosed: float | None = None

    def figures(self, seconds: float | None = None, *, require_coverage: bool = False) -> EngineFigures:
        """Return the figures of the last `seconds`, or of everything seen.

        `require_coverage`: all are absent where the history is much shorter than that.
        """
        window = self.windows[seconds]
        absent = None
        if window is None:
            absent = Absent("only one reading yet: a window needs two")
        elif require_coverage and window.coverage < MIN_COVERAGE:
            absent = Absent(f"window not yet covered: {window.seconds:.0f} s of {seconds:.0f} s")
            window = None
        level = self.levels[seconds]() if window is not None else None
        figures = window_figures(
            self.reading, window, level=level, cost=self.cost, events=self.events[seconds], absent=absent,
            era=self.era, frozen=self.frozen, was_emptied=self.was_emptied,
        )  # fmt: skip
        if self.held is not None and seconds == self.diagnosed:
            return EngineFigures.of(figures, self.held)
        found = absent or diagnose(
            figures, thresholds=self.thresholds, events=evidence(self.events[seconds]), age=self._age()
        )
        return EngineFigures.of(figures, found)

    def _age(self) -> float | None:
        """Return for how long the cache has been filling, None where that is not known."""
        age = engine_age(self.reading)
        if self.emptied_at is None:
            return age
        since = max(0.0, self.reading.time - self.emptied_at)
        return since if age is None else min(age, since)


def evidence(events: EventFigures) -> EventEvidence | None:
    """Return what cache events say for a diagnosis, None where they say nothing."""
    if isinstance(events.avoidable_miss_ratio, Absent) or isinstance(events.counts, Absent):
        return None
    split = events.key_split_ratio
    return EventEvidence(
        stored=events.counts.blocks_stored,
        avoidable_miss_ratio=events.avoidable_miss_ratio,
        key_split_ratio=0.0 if isinstance(split, Absent) else split,
    )


def engine_age(reading: Reading) -> float | None:
    """Return for how many seconds the engine has counted, None where the page does not say."""
    began = min(reading.created.values(), default=None)
    return None if began is None else max(0.0, reading.time - began)


def _began_anew(last: Reading, reading: Reading) -> bool:
    """Say whether the engine's counters were created after the last reading."""
    shared = last.created.keys() & reading.created.keys()
    return bool(shared) and all(reading.created[key] > max(last.created[key], last.time) for key in shared)


class TargetWatch:
    """One target: who answers there, and its engines' histories.

    `spans`: the windows that will be asked for, in seconds; empty keeps every reading. `diagnosed`:
    the one whose diagnosis changes only after another has lasted `hold_seconds`; None: none is held.
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

    def add(self, page: PageReading) -> None:
        """Take what a page says. Raises `Refused` for one that moves no baseline."""
        if self.page is not None and page.time <= self.page.time:
            raise Refused("time_went_back", f"time went from {self.page.time:.3f} to {page.time:.3f}")
        has_fallen = any(
            self.engines[key].has_fallen(reading) for reading in page.engines if (key := _key(reading)) in self.engines
        )
        verdict = self._processes.judge(page, has_fallen=has_fallen)
        if verdict is Verdict.SEVERAL:
            self.engines.clear()
            self.page = page
            raise Refused("several_engines", SEVERAL_ENGINES)
        if verdict is Verdict.SAME:
            self._refuse_incomplete(page)
        self._incomplete = 0
        self.page, self.error = page, page.why_empty
        for key in self.engines.keys() - {_key(reading) for reading in page.engines}:
            del self.engines[key]
        with self._lock:
            self._add(page, verdict)

    def _add(self, page: PageReading, verdict: Verdict) -> None:
        """Give each engine its reading, and its cache events where there are any."""
        tallies = self._feed.tallies() if self._feed else {}
        for reading in page.engines:
            engine = self.engines.get(_key(reading))
            if engine is None:
                engine = EngineWatch(self._spans, thresholds=self._thresholds, hold=Hold(self._hold_seconds))
                self.engines[_key(reading)] = engine
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

    def trends(self, seconds: float, count: int) -> dict[tuple[str, str], list[float | None]]:
        """Return each engine's token hit ratio over the last `seconds`, by (model name, engine)."""
        return {key: engine.trend(seconds, count, self.era) for key, engine in self.engines.items()}

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

    def _refuse_incomplete(self, page: PageReading) -> None:
        """Refuse a page that lacks what the last one had: it was cut off, or is being written."""
        readings = {_key(reading): reading for reading in page.engines}
        for key, engine in self.engines.items():
            reading = readings.get(key)
            missing = engine.lacks(reading) if reading else ["all of an engine's counters"]
            if missing and self._incomplete + 1 < ACCEPT_AFTER:
                self._incomplete += 1
                raise Refused("incomplete", f"the page lacks {missing[0]}, which was there before: was it cut off?")


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


def _key(reading: Reading) -> tuple[str, str]:
    return reading.model_name, reading.engine
