"""All figures of one engine over one window."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from prefixwatch.figures import eviction, ratios
from prefixwatch.figures.events import EventCounts, EventFigures
from prefixwatch.figures.figure import Absent, Estimate, ratio
from prefixwatch.figures.requestlevel import RequestLevel, hit_ratio_ceiling, level_since_start
from prefixwatch.figures.residency import Residency, residency
from prefixwatch.figures.savings import Saving, TokenCost, saving
from prefixwatch.figures.standstill import ACTIVITY
from prefixwatch.figures.windows import Window
from prefixwatch.page.caveats import CHANGED, RESTARTED, RETRIED, Caveat, Era
from prefixwatch.page.reading import Counted, Reading

T = TypeVar("T")
Figure = float | Absent

RESTARTS = "own/restarts"
CHANGES = "own/process_changes"
_ONCE_A_LOOKUP = Era(first=(0, 28))
NO_EVENTS = EventFigures.absent(Absent("the engine's cache events are not watched"))
_NO_PREEMPTIONS = Absent("no preemptions counter on this page")
_TOO_FEW = Absent("no intervals to fit prefill times from: one reading, or a page alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFigures:
    """The figures of one engine over one window.

    Ratios and shares in 0..1, tokens, seconds and counts as the names say. `frozen`: why the
    counters count as standing still, if they do; `is_idle`: nothing was looked up; `is_still`: no
    counter of work done moved at all. `caching_evidence`: what says that caching is on or off.
    """

    model_name: str
    engine: str
    window_seconds: Figure
    requests: Figure
    token_hit_ratio: Figure
    external_hit_ratio: Figure
    cached_prompt_ratio: Figure
    hit_ratio_ceiling: Estimate | Absent
    request_hit_ratio: Estimate | Absent
    mostly_cached_request_ratio: Estimate | Absent
    full_request_ratio: Estimate | Absent
    cold_request_ratio: Estimate | Absent
    hit_ratio_gap: Figure
    prompt_tokens_by_source: Mapping[str, float] | Absent
    prompt_tokens_per_request: Figure
    output_per_prompt_token: Figure
    prefill_share: Figure
    block_tokens: int | Absent
    pool_tokens: Figure
    pool_filled: bool | Absent
    turnover_seconds: Figure
    kv_usage_max: Figure
    requests_running: Figure
    requests_waiting: Figure
    requests_waiting_max: Figure
    preemptions: Figure
    residency: Residency | Absent
    avoidable_miss_ratio: Figure
    working_set_ratio: Figure
    whatif_avoidable_miss_ratio: Mapping[str, float] | Absent
    key_split_ratio: Figure
    cache_events: EventCounts | Absent
    prefill_seconds_saved: Saving | Absent
    prefill_saved_share: Figure
    caching_enabled: bool | Absent
    frozen: str | None = None
    is_idle: bool = False
    is_still: bool = False
    caching_evidence: str = ""
    caveats: tuple[str, ...] = ()


def since_start(reading: Reading) -> Window:
    """Return the window from the engine's start to a single reading: the counters as they stand."""
    return Window(start=reading.time, end=reading.time, increases=reading.counters, peaks=reading.gauges)


def window_figures(
    reading: Reading,
    window: Window | None,
    *,
    level: RequestLevel | None = None,
    cost: TokenCost | Absent = _TOO_FEW,
    events: EventFigures = NO_EVENTS,
    absent: Absent | None = None,
    era: Era = Era(),
    frozen: str | None = None,
    was_emptied: bool = False,
) -> WindowFigures:
    """Derive all figures of an engine from its window and its newest reading.

    `level`: the request level of the window, by default that of all requests since the engine's
    start. `cost`: what a computed token costs. `events`: what cache events say. `absent`: why there is no window, which is then the
    reason of every figure that needs one.
    """
    gauges, config = reading.gauges, reading.config
    increases = Counted.of(window.increases if window is not None else {})
    peaks = window.peaks if window is not None else {}
    running = peaks.get("requests_running", 0.0)
    pool = eviction.pool_tokens(config)
    seconds: Figure = (window.seconds if window else 0.0) or Absent("one page does not say how long it covers")
    enabled, caching_evidence = is_caching_enabled(reading)
    saved = saving(cost, _cached_at_finish(increases))
    if absent is not None:
        level = RequestLevel.absent(absent)
    elif level is None:
        level = level_since_start(reading)

    of_window = partial(_unless, absent)
    return WindowFigures(
        model_name=reading.model_name,
        engine=reading.engine,
        window_seconds=of_window(seconds),
        requests=of_window(ratios.requests_finished(increases)),
        token_hit_ratio=of_window(
            _why_no_lookups(reading, enabled, frozen)
            or ratios.token_hit_ratio(increases, running=running, may_retry=may_retry(era))
        ),
        external_hit_ratio=of_window(ratios.external_hit_ratio(increases)),
        cached_prompt_ratio=of_window(ratios.cached_prompt_ratio(increases)),
        hit_ratio_ceiling=absent or hit_ratio_ceiling(increases, config),
        request_hit_ratio=level.hit_ratio,
        mostly_cached_request_ratio=level.mostly_cached,
        full_request_ratio=level.full,
        cold_request_ratio=level.cold,
        hit_ratio_gap=level.gap,
        prompt_tokens_by_source=of_window(ratios.prompt_tokens_by_source(increases)),
        prompt_tokens_per_request=of_window(ratios.prompt_tokens_per_request(increases)),
        output_per_prompt_token=of_window(ratios.output_per_prompt_token(increases)),
        prefill_share=of_window(ratios.prefill_share(increases)),
        block_tokens=config.effective_block or Absent("the page does not state a block size"),
        pool_tokens=pool,
        pool_filled=eviction.is_pool_filled(pool, reading.counters, was_emptied=was_emptied),
        turnover_seconds=of_window(eviction.turnover_seconds(pool, eviction.written_tokens(increases), seconds)),
        kv_usage_max=of_window(_gauge(peaks, "kv_usage")),
        requests_running=_gauge(gauges, "requests_running"),
        requests_waiting=_gauge(gauges, "requests_waiting"),
        requests_waiting_max=of_window(_gauge(peaks, "requests_waiting")),
        preemptions=of_window(increases.get("preemptions", _NO_PREEMPTIONS)),
        residency=of_window(residency(increases)),
        avoidable_miss_ratio=of_window(events.avoidable_miss_ratio),
        working_set_ratio=of_window(events.working_set_ratio),
        whatif_avoidable_miss_ratio=of_window(events.whatif),
        key_split_ratio=of_window(events.key_split_ratio),
        cache_events=of_window(events.counts),
        prefill_seconds_saved=of_window(saved),
        prefill_saved_share=of_window(_saved_share(saved, increases)),
        caching_enabled=enabled,
        frozen=frozen,
        is_idle=ratios.lookups(increases)[0] == 0,
        is_still=window is not None and not any(increases.get(name) for name in ACTIVITY),
        caching_evidence=caching_evidence,
        caveats=tuple(str(one) for one in _caveats(increases, era, running)),
    )


def _unless(absent: Absent | None, value: T) -> T | Absent:
    return absent if absent is not None else value


def _caveats(increases: Mapping[str, float], era: Era, running: float) -> Iterator[Caveat]:
    if may_retry(era) and ratios.are_lookups_retried(increases, running=running):
        yield RETRIED
    if increases.get(RESTARTS):
        yield RESTARTED
    if increases.get(CHANGES):
        yield CHANGED


def may_retry(era: Era) -> bool:
    """Say whether a release of this era may count a waiting request's lookup more than once."""
    return not _ONCE_A_LOOKUP.contains(era)


def _cached_at_finish(increases: Mapping[str, float]) -> float | Absent:
    prompt, computed = increases.get("request_prompt_tokens/sum"), increases.get("request_computed_tokens/sum")
    if prompt is None or computed is None:
        return Absent("no computed tokens of finished requests on this page (from vLLM 0.13)")
    return max(0.0, prompt - computed)


def _saved_share(saved: Saving | Absent, increases: Mapping[str, float]) -> float | Absent:
    """Return what share of the requests' inference time would have been more without the cache."""
    inference = increases.get("inference_seconds/sum")
    if isinstance(saved, Absent):
        return saved
    if inference is None:
        return Absent("no inference times on this page")
    return ratio(saved.estimate, inference + saved.estimate, when_zero="no request finished")


def _gauge(gauges: Mapping[str, float], name: str) -> float | Absent:
    value = gauges.get(name)
    return Absent(f"no {name.replace('_', ' ')} gauge on this page") if value is None else value


def is_caching_enabled(reading: Reading) -> tuple[bool | Absent, str]:
    """Say whether prefix caching is on, and what says so: the flag, else what the counters show."""
    flag = reading.config.enable_prefix_caching
    if flag is not None:
        return flag, f"enable_prefix_caching is {flag}"
    if reading.gauges.get("lifetime_hit_rate", 0.0) < 0:
        return False, "the V0 engine's hit rate is -1, which says that caching is off"
    queried, _ = ratios.lookups(reading.counters)
    if isinstance(queried, Absent):
        return Absent("the page does not state enable_prefix_caching"), ""
    if queried > 0:
        return True, "prompts are looked up"
    if reading.counters.get("prompt_tokens", 0.0) > 0:
        return False, "prompts are served, and none was ever looked up"
    return Absent("the page does not state enable_prefix_caching, and nothing was served yet"), ""


def _why_no_lookups(reading: Reading, enabled: bool | Absent, frozen: str | None) -> Absent | None:
    """Return why there can be no token hit ratio, whatever the window; None where there can."""
    if enabled is False:
        return Absent("prefix caching is off")
    rate = reading.gauges.get("lifetime_hit_rate")
    if rate is not None and isinstance(ratios.lookups(reading.counters)[0], Absent):
        return Absent(
            f"the V0 engine states only its hit rate since the start ({rate:.3f}): no window can be made of it"
        )
    return Absent(frozen) if frozen else None
