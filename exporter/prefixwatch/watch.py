"""Engines under watch: readings go in, figures over any window come out.

Time is passed in. What cannot be trusted moves no baseline: a page that lacks counters it had
before, one read out of order, one of several engines that answer on an address in turn.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from prefixwatch.figures import eviction, ratios
from prefixwatch.figures.figure import Absent
from prefixwatch.figures.history import History, Window
from prefixwatch.figures.requestlevel import (
    LOST,
    RequestLevel,
    RequestWatch,
    hit_ratio_ceiling,
    level_since_start,
    lost_requests,
)
from prefixwatch.figures.standstill import Standstill
from prefixwatch.page.caveats import RETRIED, Era
from prefixwatch.page.reading import PageReading, Reading
from prefixwatch.processes import Processes, Verdict
from prefixwatch.snapshot import EngineFigures, TargetSnapshot

T = TypeVar("T")

MIN_COVERAGE = 0.9
"""A window counts as covered from this share of its length on."""

ACCEPT_AFTER = 3
"""Pages in a row that lack what was there before, until that counts as the engine's new shape."""

SEVERAL_ENGINES = "several engines answer on this address in turn (a load-balanced Service?): watch each pod's own address"
_RATE_SECONDS = 60.0
_WRITTEN = "own/written_tokens"
_PEAKS = ("kv_usage", "requests_running", "requests_waiting")
_ONCE_A_LOOKUP = Era(first=(0, 28))


class Refused(Exception):
    """A page that was read, and cannot be used. `kind` is one word for a metric's label."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class EngineWatch:
    """One engine's history. `spans`: the windows that will be asked for, in seconds."""

    spans: Collection[float]
    history: History = field(init=False)
    standstill: Standstill = field(default_factory=Standstill)
    requests: RequestWatch = field(default_factory=RequestWatch)
    last: Reading | None = None
    was_emptied: bool = False
    restarts: int = 0
    began: float | None = None

    def __post_init__(self) -> None:
        self.history = History(self.spans)

    def lacks(self, reading: Reading) -> list[str]:
        """Return the counters that the last reading had and this one has not."""
        return sorted(self.last.counters.keys() - reading.counters.keys()) if self.last else []

    def has_fallen(self, reading: Reading) -> bool:
        """Say whether a counter of lookups or prompt tokens went down: a reset seen by value."""
        if self.last is None:
            return False
        names = (*(f"queried_{unit}" for unit in ratios.LOOKUP_UNITS), "prompt_tokens")
        return any(reading.counters.get(name, 0.0) < self.last.counters.get(name, 0.0) for name in names)

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
        grown = self.history.add(
            reading.time, reading.counters, peaks, restarted=restarted, born=born, counts=counts
        )
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
        self.history.accumulate(added, ledger)
        self.began = reading.time if self.began is None else self.began

    def trend(self, seconds: float, count: int, era: Era) -> list[float | None]:
        """Return the token hit ratio of the last `seconds` in `count` steps, oldest first."""
        ratio_of = [
            None if step is None else ratios.token_hit_ratio(step.increases, may_retry=_may_retry(era))
            for step in self.history.steps(seconds, count)
        ]
        return [None if isinstance(value, Absent) else value for value in ratio_of]

    def state(self, spans: Collection[float | None], era: Era) -> "EngineState":
        """Return all there is to know of the engine now, for windows of `spans` (None: everything seen)."""
        assert self.last is not None
        windows = {span: self.history.window(span) for span in spans}
        return EngineState(
            reading=self.last,
            windows=windows,
            levels={span: self.requests.level(window) for span, window in windows.items() if window is not None},
            era=era,
            frozen=self.standstill.reason,
            was_emptied=self.was_emptied,
            restarts=self.restarts,
            own=self.history.totals("own/"),
            began=self.began or 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One engine at one moment, immutable: figures can be derived from it anywhere, any time.

    `windows` by the length asked for, None for everything seen; a value of None: fewer than two
    readings; `levels` holds the request level of those that are there. `frozen`: why its counters
    count as frozen, if they do. `own`: the exporter's own counters since the watch `began` (unix seconds).
    """

    reading: Reading
    windows: Mapping[float | None, Window | None]
    levels: Mapping[float | None, RequestLevel]
    era: Era
    frozen: str | None
    was_emptied: bool
    restarts: int
    own: Mapping[str, float]
    began: float

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
        return engine_figures(
            self.reading, window, level=self.levels.get(seconds), absent=absent, era=self.era,
            frozen=self.frozen, was_emptied=self.was_emptied,
        )  # fmt: skip


def _began_anew(last: Reading, reading: Reading) -> bool:
    """Say whether the engine's counters were created after the last reading."""
    shared = last.created.keys() & reading.created.keys()
    return bool(shared) and all(reading.created[key] > max(last.created[key], last.time) for key in shared)


def since_start(reading: Reading) -> Window:
    """Return the window from the engine's start to a single reading: the counters as they stand."""
    return Window(start=reading.time, end=reading.time, increases=reading.counters, peaks=reading.gauges)


def engine_figures(
    reading: Reading,
    window: Window | None,
    *,
    level: RequestLevel | None = None,
    absent: Absent | None = None,
    era: Era = Era(),
    frozen: str | None = None,
    was_emptied: bool = False,
) -> EngineFigures:
    """Derive all figures of an engine from its window and its newest reading.

    `level`: the request level of the window, by default that of all requests since the engine's start. `absent`: why there is no window, the reason of every figure that needs one.
    """
    gauges, config = reading.gauges, reading.config
    increases = window.increases if window is not None else {}
    peaks = window.peaks if window is not None else {}
    running = peaks.get("requests_running", 0.0)
    may_retry = _may_retry(era)
    pool = eviction.pool_tokens(config)
    seconds: float | Absent = (window.seconds if window else 0.0) or Absent("one page does not say how long it covers")
    enabled = _is_caching_enabled(reading)
    no_lookups = _why_no_lookups(reading, enabled, frozen)

    if level is None or absent is not None:
        level = RequestLevel.absent(absent) if absent is not None else level_since_start(reading)

    def of_window(value: T) -> T | Absent:
        return absent if absent is not None else value

    return EngineFigures(
        model_name=reading.model_name,
        engine=reading.engine,
        window_seconds=of_window(seconds),
        requests=of_window(ratios.requests_finished(increases)),
        token_hit_ratio=of_window(
            no_lookups or ratios.token_hit_ratio(increases, running=running, may_retry=may_retry)
        ),
        external_hit_ratio=of_window(ratios.external_hit_ratio(increases)),
        cached_prompt_ratio=of_window(ratios.cached_prompt_ratio(increases)),
        hit_ratio_ceiling=absent or (hit_ratio_ceiling(window, config) if window else Absent("no window")),
        request_hit_ratio=level.hit_ratio,
        mostly_cached_request_ratio=level.mostly_cached,
        full_request_ratio=level.full,
        cold_request_ratio=level.cold,
        hit_ratio_gap=level.gap,
        prompt_tokens_by_source=of_window(ratios.prompt_tokens_by_source(increases)),
        output_per_prompt_token=of_window(ratios.output_per_prompt_token(increases)),
        prefill_share=of_window(ratios.prefill_share(increases)),
        pool_tokens=pool,
        pool_filled=eviction.is_pool_filled(pool, reading.counters, was_emptied=was_emptied),
        turnover_seconds=of_window(
            eviction.turnover_seconds(pool, eviction.written_tokens(increases), seconds)
        ),
        kv_usage_max=of_window(_gauge(peaks, "kv_usage")),
        requests_running=_gauge(gauges, "requests_running"),
        requests_waiting=_gauge(gauges, "requests_waiting"),
        preemptions=of_window(increases.get("preemptions", Absent("no preemptions counter on this page"))),
        caching_enabled=enabled,
        caveats=(str(RETRIED),) if may_retry and ratios.are_lookups_retried(increases, running=running) else (),
    )


def _may_retry(era: Era) -> bool:
    return not _ONCE_A_LOOKUP.contains(era)


def _gauge(gauges: Mapping[str, float], name: str) -> float | Absent:
    return gauges.get(name, Absent(f"no {name.replace('_', ' ')} gauge on this page"))


def _is_caching_enabled(reading: Reading) -> bool | Absent:
    """Say whether prefix caching is on: by the flag, else by what the counters show."""
    flag = reading.config.enable_prefix_caching
    if flag is not None:
        return flag
    if reading.gauges.get("lifetime_hit_rate", 0.0) < 0:
        return False
    queried, _ = ratios.lookups(reading.counters)
    if isinstance(queried, Absent):
        return Absent("the page does not state enable_prefix_caching")
    prompt = reading.counters.get("prompt_tokens", 0.0)
    if queried == 0 and prompt > 0:
        return False  # prompts are served and none is looked up
    return True if queried > 0 else Absent("the page does not state enable_prefix_caching, and nothing was served yet")


def _why_no_lookups(reading: Reading, enabled: bool | Absent, frozen: str | None) -> Absent | None:
    """Return why there can be no token hit ratio, whatever the window; None where there can."""
    if enabled is False:
        return Absent("prefix caching is off")
    rate = reading.gauges.get("lifetime_hit_rate")
    if rate is not None and isinstance(ratios.lookups(reading.counters)[0], Absent):
        return Absent(f"the V0 engine states only its hit rate since the start ({rate:.3f}): no window can be made of it")
    return Absent(frozen) if frozen else None


class TargetWatch:
    """One target: who answers there, and its engines' histories.

    `spans`: the windows that will be asked for, in seconds; empty keeps every reading.
    """

    def __init__(self, target: str, *, spans: Collection[float] = (), labels: Mapping[str, str] | None = None) -> None:
        self.target = target
        self.labels = dict(labels or {})
        self.engines: dict[tuple[str, str], EngineWatch] = {}
        self.page: PageReading | None = None
        self.error: str | None = None
        self._spans = spans
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
        for reading in page.engines:
            engine = self.engines.setdefault(_key(reading), EngineWatch(self._spans))
            engine.add(
                reading,
                restarted=verdict is Verdict.RESTARTED,
                counts=verdict is not Verdict.UNCLEAR,
                process_start=page.epoch[1],
            )

    def trends(self, seconds: float, count: int) -> dict[tuple[str, str], list[float | None]]:
        """Return each engine's token hit ratio over the last `seconds`, by (model name, engine)."""
        era = self.page.era if self.page else Era()
        return {key: engine.trend(seconds, count, era) for key, engine in self.engines.items()}

    def fail(self, error: str) -> None:
        """Note that a poll gave nothing to read, and why."""
        self.error = error

    def state(self, spans: Collection[float | None] = (None,)) -> "TargetState":
        """Return the target as it stands, with windows of `spans` (None: everything seen)."""
        era = self.page.era if self.page else Era()
        return TargetState(
            target=self.target,
            labels=self.labels,
            page=self.page,
            error=self.error,
            engines=tuple(self.engines[key].state(spans, era) for key in sorted(self.engines)),
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
