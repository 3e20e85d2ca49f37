"""One engine under watch: readings go in, figures over any window come out. Time is passed in."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field, replace

from prefixwatch.diagnosis import Diagnosis, Hold, Thresholds
from prefixwatch.enginestate import MIN_COVERAGE, EngineState
from prefixwatch.figures import eviction, ratios
from prefixwatch.figures.engine import CHANGES, NO_EVENTS, RESTARTS, WindowFigures, is_caching_enabled, window_figures
from prefixwatch.figures.events import EventFigures, EventTally, event_figures
from prefixwatch.figures.figure import Absent
from prefixwatch.figures.history import History
from prefixwatch.figures.requestlevel import LOST, RequestWatch, finishing_rate, lost_requests
from prefixwatch.figures.savings import COLUMNS, TokenCost, saving, token_cost
from prefixwatch.figures.standstill import Standstill
from prefixwatch.figures.windows import Window
from prefixwatch.page.caveats import Era
from prefixwatch.page.reading import Counted, Reading

_RATE_SECONDS = 60.0
_FIT_SPAN = 100
_FIRST_DIAGNOSIS_SECONDS = 20.0
_WRITTEN = "own/written_tokens"
_SAVED = "own/prefill_saved_seconds"
_NEVER_FALLING = (*(f"queried_{unit}" for unit in ratios.LOOKUP_UNITS), "prompt_tokens")
_PEAKS = ("kv_usage", "requests_running", "requests_waiting")


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
        if self.last is None or self.last.counters.keys() == reading.counters.keys():
            return []
        return sorted(self.last.counters.keys() - reading.counters.keys())

    def has_fallen(self, reading: Reading) -> bool:
        """Say whether a counter of lookups or prompt tokens went down: a reset seen by value."""
        if self.last is None:
            return False
        now, before = reading.counters, self.last.counters
        # One that is missing has not fallen: the page may be cut off.
        return any(now[name] < before.get(name, 0.0) for name in _NEVER_FALLING if name in now)

    def add(
        self, reading: Reading, *, restarted: bool = False, counts: bool = True, process_start: float | None = None
    ) -> None:
        """Take a reading. `counts` False: a new baseline, nothing since the last one is known.

        `process_start`: unix seconds at which the process started that answered, where it says so.
        """
        last, self.last = self.last, reading
        restarted = restarted or (counts and last is not None and _began_anew(last, reading))
        born = _born(last, reading) if last is not None else ()
        peaks = {name: reading.gauges[name] for name in _PEAKS if name in reading.gauges}
        grown = Counted(
            self.history.add(reading.time, reading.counters, peaks, restarted=restarted, born=born, counts=counts)
        )
        if restarted or not counts:
            self.standstill.reset()
            self.was_emptied = False
        self.was_emptied = self.was_emptied or eviction.is_asleep(reading.gauges)
        self.standstill.observe(reading.time, grown, reading.counters, reading.gauges)
        if restarted and last is not None:
            self.restarts += 1
            ended = min(process_start or min(reading.created.values(), default=reading.time), reading.time)
            lost = lost_requests(self._finishing_rate(last), ended - last.time)
        elif last is not None and not counts:
            lost = lost_requests(self._finishing_rate(last), reading.time - last.time)
        else:
            lost = 0.0
        written = eviction.written_tokens(grown)
        added, ledger = self.requests.observe(grown, reading)
        added[LOST] = lost
        added[RESTARTS] = float(restarted and last is not None)
        added[CHANGES] = float(not counts and last is not None)
        added[_WRITTEN] = 0.0 if isinstance(written, Absent) else written
        saved = saving(self.cost, added.get("own/cached_tokens", 0.0))
        if not isinstance(saved, Absent):  # a zero would say that nothing was saved
            added[_SAVED] = saved.estimate
        self.history.accumulate(added, ledger)
        if self.tally is not None:
            began = process_start or min(reading.created.values(), default=None)
            self._take_events(self.tally, restarted_at=began if restarted and last is not None else None)
        self.began = reading.time if self.began is None else self.began
        self.polls += 1
        if self.polls >= self.next_fit:
            self.cost = token_cost(self.history.intervals(COLUMNS))
            self.next_fit = self.polls + 1 + min(self.polls, _FIT_SPAN) // 10

    def _finishing_rate(self, last: Reading) -> float:
        return finishing_rate(self.history.window(_RATE_SECONDS, end=last.time), last)

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

    def state(self, spans: Collection[float | None], era: Era, *, diagnosed: float | None = None) -> EngineState:
        """Return all there is to know of the engine now, for windows of `spans` (None: everything seen).

        `diagnosed`: the span whose diagnosis is held until another has lasted; None: none is. It is made
        anew when the hold wants it, or when what decides at once is no longer the same.
        """
        assert self.last is not None
        wanted = {*spans} if diagnosed is None else {*spans, diagnosed}
        past, frozen = self.history.past(), self.standstill.reason
        signs = self._signs(era, is_frozen=frozen is not None)
        state = EngineState(
            reading=self.last,
            past=past,
            level=self.requests.level_later(),
            events={span: self.event_figures(past.window(span)) for span in wanted} if self.tally else {},
            emptied_at=self.tally.emptied_at if self.tally else None,
            sampling_rate=self.tally.sampling_rate if self.tally else None,
            era=era,
            frozen=frozen,
            was_emptied=self.was_emptied,
            restarts=self.restarts,
            began=self.began or 0.0,
            cost=self.cost,
            thresholds=self.thresholds,
            held=None if diagnosed is None else self._known_diagnosis(past.seconds(), diagnosed, signs),
            diagnosed=diagnosed,
        )
        if diagnosed is None or state.held is not None:
            return state
        judged = state.window_figures(diagnosed)
        found = self.hold.update(self.last.time, state.diagnosis(judged, diagnosed), signs)
        return replace(state, held=found, judged=judged)

    def _known_diagnosis(
        self, seen: float | None, diagnosed: float, signs: tuple[Hashable, ...]
    ) -> Diagnosis | Absent | None:
        """Return the diagnosis that needs no look at the figures now; None: one is due. `seen`: for how many seconds."""
        assert self.last is not None
        if seen is None or seen < MIN_COVERAGE * min(_FIRST_DIAGNOSIS_SECONDS, diagnosed):
            return Absent("too little was seen yet for a diagnosis")
        return None if self.hold.is_due(self.last.time, signs) else self.hold.answer

    def _signs(self, era: Era, *, is_frozen: bool) -> tuple[Hashable, ...]:
        """Return what may change a diagnosis at once, whatever the window."""
        assert self.last is not None
        enabled, _ = is_caching_enabled(self.last)
        emptied_at = self.tally.emptied_at if self.tally else None
        return self.restarts, self.was_emptied, emptied_at, is_frozen, enabled, self.last.config, era


def _born(last: Reading, reading: Reading) -> set[str]:
    """Return the counters that began after the last reading, as the page states."""
    if reading.counters.keys() == last.counters.keys():
        return set()
    return {
        key
        for key in reading.counters.keys() - last.counters.keys()
        if (created := reading.created.get(key.split("/le/")[0].removesuffix("/sum").removesuffix("/count")))
        and created > last.time
    }


def _began_anew(last: Reading, reading: Reading) -> bool:
    """Say whether the engine's counters were created after the last reading."""
    shared = last.created.keys() & reading.created.keys()
    return bool(shared) and all(reading.created[key] > max(last.created[key], last.time) for key in shared)
