"""One engine at one moment: figures over any window, derived when they are asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prefixwatch.diagnosis import Diagnosis, EventEvidence, Thresholds, diagnose
from prefixwatch.figures import ratios
from prefixwatch.figures.engine import NO_EVENTS, WindowFigures, may_retry, window_figures
from prefixwatch.figures.events import EventFigures
from prefixwatch.figures.figure import Absent
from prefixwatch.figures.requestlevel import RequestLevel
from prefixwatch.figures.savings import TokenCost
from prefixwatch.figures.windows import Past, Window
from prefixwatch.page.caveats import Era
from prefixwatch.page.reading import Reading
from prefixwatch.snapshot import EngineFigures

MIN_COVERAGE = 0.9
"""A window counts as covered from this share of its length on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One engine at one moment, immutable: figures can be derived from it anywhere, any time.

    `past` gives its windows, `level` the request level of one, `events` what cache events say of each
    span that was asked for, where they are watched; `emptied_at`: when these last showed that the cache was cleared. `frozen`: why its
    counters count as frozen, if they do. The watch `began` then (unix seconds). `held`: the diagnosis
    that holds for the span `diagnosed`, where one is held, `judged`: the figures of that span, if it
    was made of these.
    """

    reading: Reading
    past: Past
    level: Callable[[Window], RequestLevel]
    events: Mapping[float | None, EventFigures]
    emptied_at: float | None
    sampling_rate: float | None
    era: Era
    frozen: str | None
    was_emptied: bool
    restarts: int
    began: float
    cost: TokenCost | Absent
    thresholds: Thresholds
    held: Diagnosis | Absent | None = None
    diagnosed: float | None = None
    judged: WindowFigures | None = None

    @property
    def own(self) -> dict[str, float]:
        """The exporter's own counters since the watch began."""
        return self.past.sums("own/")

    def trend(self, seconds: float, count: int) -> list[float | None]:
        """Return the token hit ratio of the last `seconds` in `count` steps, oldest first."""
        ratio_of = [
            None if step is None else ratios.token_hit_ratio(step.increases, may_retry=may_retry(self.era))
            for step in self.past.steps(seconds, count)
        ]
        return [None if isinstance(value, Absent) else value for value in ratio_of]

    def figures(self, seconds: float | None = None, *, require_coverage: bool = False) -> EngineFigures:
        """Return the figures of the last `seconds`, or of everything seen.

        `require_coverage`: all are absent where the history is much shorter than that.
        """
        figures = self.window_figures(seconds, require_coverage=require_coverage)
        if self.held is not None and seconds == self.diagnosed:
            return EngineFigures.of(figures, self.held)
        why = self._why_absent(seconds, require_coverage=require_coverage)
        return EngineFigures.of(figures, why or self.diagnosis(figures, seconds))

    def window_figures(self, seconds: float | None = None, *, require_coverage: bool = False) -> WindowFigures:
        """Return the same figures without what they point to."""
        absent = self._why_absent(seconds, require_coverage=require_coverage)
        if absent is None and seconds == self.diagnosed and self.judged is not None:
            return self.judged
        window = None if absent else self.past.window(seconds)
        level = self.level(window) if window is not None else None
        return window_figures(
            self.reading, window, level=level, cost=self.cost, events=self._events(seconds), absent=absent,
            era=self.era, frozen=self.frozen, was_emptied=self.was_emptied,
        )  # fmt: skip

    def diagnosis(self, figures: WindowFigures, seconds: float | None) -> Diagnosis:
        """Return what figures over `seconds` point to."""
        return diagnose(figures, thresholds=self.thresholds, events=evidence(self._events(seconds)), age=self._age())

    def _why_absent(self, seconds: float | None, *, require_coverage: bool) -> Absent | None:
        """Return why there are no figures of that window, None where there are."""
        seen = self.past.seconds(seconds)
        if seen is None:
            return Absent("only one reading yet: a window needs two")
        if require_coverage and self.past.coverage(seconds) < MIN_COVERAGE:
            return Absent(f"window not yet covered: {seen:.0f} s of {seconds:.0f} s")
        return None

    def _events(self, seconds: float | None) -> EventFigures:
        return self.events.get(seconds, NO_EVENTS)

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
