"""What the page shows: the status of each target, made ready to be drawn. No clock, no I/O."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from prefixwatch.config import Config
from prefixwatch.figures.figure import Absent
from prefixwatch.settings import Duration
from prefixwatch.snapshot import EngineFigures, TargetSnapshot
from prefixwatch.targetpoller import TargetStatus

MAX_IN_FULL = 4
"""More engines than this become a list, unless one target was chosen."""

_NETWORK = frozenset({"connection", "dns", "timeout"})
_MIN_SEEN = 1 / 3
"""A trend is drawn over the longest window of which at least so much was seen."""

_TREND_STEPS, _MIN_STEPS = 40, 8
_ALL_STEPS = 4000
"""So many steps are made for a whole page at most: polls are slower meanwhile."""

MIN_REFRESH = Duration(2)
"""The page is not asked for more often, however often engines are polled."""

Trend = Sequence[float | None]


class State(StrEnum):
    """How a target stands, worst first."""

    ERROR = "error"
    STALE = "stale"
    LATE = "late"
    LOADING = "loading"
    WAITING = "not polled yet"
    UP = "up"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """One engine: its figures over the page's window as far as it was seen, and over each window that was.

    `trend_of` gives the token hit ratio in steps, oldest first, None where nothing is known: of a thousand engines only
    some are drawn.
    """

    figures: EngineFigures
    by_window: Mapping[str, EngineFigures] = field(default_factory=dict)
    trend_of: Callable[[], Trend] = tuple

    @property
    def cause(self) -> str | None:
        """The cause that the figures point to, None where none can be named."""
        found = self.figures.diagnosis
        return None if isinstance(found, Absent) else found.cause


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """One target. `advice`: what to do where it is not up. `last_success` in unix seconds, None: never."""

    snapshot: TargetSnapshot
    state: State
    advice: str | None = None
    last_success: float | None = None
    engines: tuple[EngineView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which targets and engines to show; None is all."""

    target: str | None = None
    model: str | None = None
    cause: str | None = None
    only_troubled: bool = False

    def admits(self, target: TargetView, engine: EngineView | None) -> bool:
        """Say whether an engine, or a target without one, is to be shown."""
        return (
            self.target in (None, target.snapshot.target)
            and (self.model is None or (engine is not None and engine.figures.model_name == self.model))
            and (self.cause is None or (engine is not None and engine.cause == self.cause))
            and not (self.only_troubled and target.state is State.UP)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All that the page shows. `time` in unix seconds; `window` is the one of the main figures."""

    targets: Sequence[TargetView]
    time: float
    window: Duration
    trend_span: Duration
    refresh: Duration
    choice: Choice = Choice()
    is_discovered: bool = True
    is_targets_file_good: bool | None = None


def views_of(
    statuses: Sequence[TargetStatus], *, config: Config, trend: tuple[Duration, int], choice: Choice = Choice()
) -> Iterator[TargetView]:
    """Yield what there is to show of each target. `trend`: over which window to draw one, and in how many steps."""
    is_list = _engines(statuses) > MAX_IN_FULL
    for status in statuses:
        is_brief = is_list and status.state.target != choice.target
        windows = () if is_brief else config.windows
        yield view(status, window=config.diagnosis_window, windows=windows, trend=trend)


def view(
    status: TargetStatus,
    *,
    window: float,
    windows: Collection[Duration],
    trend: tuple[Duration, int],
) -> TargetView:
    """Return what a status says to a person: figures over `window`, and levels over each of `windows`."""
    snapshot = status.snapshot(window)
    states = {(one.reading.model_name, one.reading.engine): one for one in status.state.engines}
    engines = []
    for figures in snapshot.engines:
        state = states[figures.model_name, figures.engine]
        by_window = {str(span): state.figures(span, require_coverage=True) for span in windows}
        engines.append(EngineView(figures=figures, by_window=by_window, trend_of=partial(state.trend, *trend)))
    condition = _state(status, has_engines=bool(engines))
    return TargetView(
        snapshot=snapshot,
        state=condition,
        advice=_advice(condition, status),
        last_success=status.last_success,
        engines=tuple(engines),
    )


def trend_scale(statuses: Sequence[TargetStatus], config: Config) -> tuple[Duration, int]:
    """Return over which window to draw the trend, and in how many steps.

    It is the longest window of which enough was seen of some engine, else the shortest. Each step
    holds a poll; many engines get fewer steps.
    """
    seen = [
        span
        for span in config.windows
        for status in statuses
        for engine in status.state.engines
        if engine.past.coverage(span) >= _MIN_SEEN
    ]
    span = max(seen, default=min(config.windows))
    by_polls = int(span / (1.25 * config.poll_interval))
    by_work = max(_MIN_STEPS, _ALL_STEPS // max(1, _engines(statuses)))
    return span, max(2, min(_TREND_STEPS, by_polls, by_work))


def _engines(statuses: Sequence[TargetStatus]) -> int:
    return sum(len(status.state.engines) for status in statuses)


def _state(status: TargetStatus, *, has_engines: bool) -> State:
    if status.is_up is None:
        return State.WAITING
    if status.is_loading:
        return State.LOADING
    if status.is_up:
        return State.UP if has_engines else State.ERROR
    if has_engines:
        return State.LATE
    return State.STALE if status.is_stale and status.last_success is not None else State.ERROR


def _advice(state: State, status: TargetStatus) -> str | None:
    match state:
        case State.LOADING:
            return (
                "An engine answers once its model is loaded: wait. If that takes longer than it should, read the"
                " engine's log, and see whether this is its address: localhost and 127.0.0.1 are each container's own, and"
                " an engine that listens there alone is out of reach of all others."
            )
        case State.LATE:
            return "The figures are those of its last answer. They end if it stays away."
        case State.STALE:
            doubt = "Does the engine still run? " if status.errors.keys() <= _NETWORK else ""
            return f"{doubt}Its figures are no longer true and are left out. It is polled on."
        case State.ERROR if status.is_up:
            return "Is this the /metrics of a vLLM engine?"
        case State.ERROR if status.last_success is None and status.errors.keys() <= _NETWORK:
            return "Does it run, is this its address, and may this host reach it (firewall, NetworkPolicy)?"
        case _:
            return None
