"""Hold what is exported of a target against the truth."""

from collections import Counter

from coherence import contradictions
from faults.soakedline import Line
from prefixwatch.collector import StatusCollector
from prefixwatch.config import Config
from prefixwatch.enginestate import EngineState
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.targetpoller import TargetStatus

_EXPORT_EVERY = 7
_SHOWN = 3
_RATIO_NOISE = 1e-9
_BOUND_NOISE = 1e-6
_LONGEST_RECOVERY = 2
"""So many polls after a fault everything is right again."""

_OF_REQUESTS = {
    "hit_ratio": "request_hit_ratio",
    "cold": "cold_request_ratio",
    "mostly_cached": "mostly_cached_request_ratio",
    "full": "full_request_ratio",
}
_HELD = "several_engines"


class Checks:
    """`counts`: how often each check was made, `violations`: and failed; `wrong`: the first of these in words."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self._since_fault: Counter[str] = Counter()
        self._counters: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[float, float]] = {}
        self._polls: Counter[str] = Counter()

    def check(self, line: Line, status: TargetStatus, *, reason: str | None, wall: float) -> None:
        """Check one target after a poll that failed for `reason`, None where it did not."""
        self._is(line, "up", bool(status.is_up) == (reason is None), f"{status.is_up} after {reason}")
        self._recovered(line, reason)
        if reason is None:
            self._is(line, "last success", status.last_success == wall, f"{status.last_success} at {wall}")
            for engine in status.state.engines:
                self._engine(line, engine)
        elif reason == _HELD:
            self._is(line, "nothing of several engines", not status.state.engines, "engines are exported")
        self._polls[line.name] += 1
        if self._polls[line.name] % _EXPORT_EVERY == 0:
            self._exported(line, status)

    def _is(self, line: Line, what: str, is_right: bool, words: str) -> None:
        self.counts[what] += 1
        if not is_right:
            self.violations[what] += 1
        if not is_right and self.violations[what] <= _SHOWN:
            self.wrong.append(f"{line.now:.2f} {line.name} ({line.fault or 'no fault'}): {what}: {words}")

    def _recovered(self, line: Line, reason: str | None) -> None:
        is_whole = line.fault in (None, "late") and line.standin.is_up
        self._since_fault[line.name] = self._since_fault[line.name] + 1 if is_whole else 0
        if self._since_fault[line.name] > _LONGEST_RECOVERY and reason != _HELD:
            self._is(line, "recovery", reason is None, f"{reason} {self._since_fault[line.name]} polls after the fault")

    def _engine(self, line: Line, engine: EngineState) -> None:
        own = line.truth.grown(engine.began, line.now)
        if own is not None:
            self._is(line, "restarts", engine.restarts == own["restarts"], f"{engine.restarts} of {own['restarts']}")
            written = own["computed"] + own["generated"]
            found = engine.own.get("written_tokens", 0.0)
            # Of a page that was cut at the end of a line, what it lacks is not counted until it is back.
            is_whole = line.cut_at < engine.began
            is_right = abs(found - written) < 0.5 or (found < written and not is_whole)
            self._is(line, "written tokens", is_right, f"{found} of {written}")
        for span in self._config.windows:
            window = engine.past.window(span)
            if window is None:
                continue
            grown = line.truth.grown(window.start, window.end)
            if grown is None:
                continue
            figures = engine.figures(span)
            ratio = figures.token_hit_ratio
            if isinstance(ratio, Absent):
                is_off = not line.standin.scenario.enable_prefix_caching and "caching is off" in ratio.reason
                is_right = is_off or not grown["queried"] or line.cut_at >= window.start
                self._is(line, "token hit ratio absent", is_right, ratio.reason)
            else:
                true = grown["hit"] / grown["queried"] if grown["queried"] else None
                is_right = true is not None and abs(ratio - true) < _RATIO_NOISE
                self._is(line, "token hit ratio", is_right, f"{ratio} of {true} over {window.seconds:.0f} s")
            self._requests(line, engine, span, window.start, window.end)

    def _requests(self, line: Line, engine: EngineState, span: float | None, start: float, end: float) -> None:
        if line.fault == "another engine":
            return  # whose requests are not these
        shares = line.truth.finished(start, end)
        figures = engine.figures(span)
        contradicted = contradictions(figures)
        self._is(line, "estimates are coherent", not contradicted, "; ".join(contradicted))
        for name, field in _OF_REQUESTS.items():
            figure = getattr(figures, field)
            if not isinstance(figure, Estimate):
                continue
            assert shares is not None
            is_right = figure.lower - _BOUND_NOISE <= shares[name] <= figure.upper + _BOUND_NOISE
            words = f"{shares[name]:.4f} not in {figure.lower:.4f} to {figure.upper:.4f} over {end - start:.0f} s"
            self._is(line, field, is_right, words)

    def _exported(self, line: Line, status: TargetStatus) -> None:
        collector = StatusCollector(lambda: [status], windows=self._config.windows)
        values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        counters: set[str] = set()
        for family in collector.collect():
            if family.type == "counter":
                counters.add(family.name)
            for sample in family.samples:
                values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
        engines = [labels for name, labels in values if "engine" in dict(labels)]
        if status.is_stale:
            self._is(line, "nothing stale", not engines, "a stale target has engines")
        for name in counters:
            for (sample, labels), value in list(values.items()):
                if sample != f"{name}_total":
                    continue
                created = values.get((f"{name}_created", labels), 0.0)
                before = self._counters.get((line.name, name, labels))
                self._counters[line.name, name, labels] = (created, value)
                if before and before[0] == created:
                    self._is(line, "counters never fall", value >= before[1], f"{name} from {before[1]} to {value}")
