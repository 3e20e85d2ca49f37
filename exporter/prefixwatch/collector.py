"""Statuses of targets to metric families, by the catalogue.

Families are built anew at each scrape from immutable statuses: nothing is set and kept, so no
label value outlives what it named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from prefixwatch import __version__
from prefixwatch.catalog import BY_NAME, METRICS, Kind
from prefixwatch.config import Duration
from prefixwatch.diagnosis import CONFIDENCE, Cause, Diagnosis
from prefixwatch.eventchannel import ChannelStatus
from prefixwatch.figures.events import POOL_NAMES
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.requestlevel import BOUNDS
from prefixwatch.figures.residency import Residency
from prefixwatch.page.reading import parts_of
from prefixwatch.poller import TargetStatus
from prefixwatch.snapshot import EngineFigures
from prefixwatch.watch import EngineState

_BY_SOURCE = "prompt_tokens_by_source"

# A metric passed through, the canonical counter that it is, and the one whose `_created` it has.
_PASSED_THROUGH = {
    "queried_tokens_total": ("queried_tokens", "queried"),
    "hit_tokens_total": ("hit_tokens", "hit"),
    "external_queried_tokens_total": ("external_queried_tokens", "external_queried_tokens"),
    "external_hit_tokens_total": ("external_hit_tokens", "external_hit_tokens"),
    "generation_tokens_total": ("generation_tokens", "generation_tokens"),
    "preemptions_total": ("preemptions", "preemptions"),
    "first_tokens_total": ("time_to_first_token_seconds/count", "time_to_first_token_seconds"),
    "first_token_seconds_total": ("time_to_first_token_seconds/sum", "time_to_first_token_seconds"),
    "queue_seconds_total": ("queue_seconds/sum", "queue_seconds"),
    "prefill_seconds_total": ("prefill_seconds/sum", "prefill_seconds"),
    "inference_seconds_total": ("inference_seconds/sum", "inference_seconds"),
}

_OWN = {
    "requests_observed_total": "requests",
    "observed_prompt_tokens_total": "prompt_tokens",
    "observed_cached_tokens_total": "cached_tokens",
    "written_tokens_total": "written_tokens",
    "blocks_stored_total": "blocks_stored",
    "blocks_removed_total": "blocks_removed",
    "blocks_stored_again_total": "blocks_stored_again",
    "blocks_key_split_total": "blocks_key_split",
    "blocks_placed_total": "blocks_placed",
    "prefill_saved_seconds_total": "prefill_saved_seconds",
}
_OWN_BOUNDED = {
    "request_hit_ratio_sum_total": "request_hit_ratio_sum",
    "cold_requests_total": "cold_requests",
    "full_requests_total": "full_requests",
    "mostly_cached_requests_total": "mostly_cached_requests",
    "cacheable_tokens_total": "cacheable_tokens",
}

_OF_WINDOW: dict[str, Callable[[EngineFigures], float | Estimate | Absent]] = {
    "token_hit_ratio": lambda f: f.token_hit_ratio,
    "external_hit_ratio": lambda f: f.external_hit_ratio,
    "cached_prompt_ratio": lambda f: f.cached_prompt_ratio,
    "request_hit_ratio": lambda f: f.request_hit_ratio,
    "hit_ratio_gap": lambda f: f.hit_ratio_gap,
    "hit_ratio_ceiling": lambda f: f.hit_ratio_ceiling,
    "output_per_prompt_token": lambda f: f.output_per_prompt_token,
    "prefill_share_ratio": lambda f: f.prefill_share,
    "prefill_saved_ratio": lambda f: f.prefill_saved_share,
    "turnover_seconds": lambda f: f.turnover_seconds,
    "kv_usage_max_ratio": lambda f: f.kv_usage_max,
    "avoidable_miss_ratio": lambda f: f.avoidable_miss_ratio,
    "working_set_ratio": lambda f: f.working_set_ratio,
    "key_split_ratio": lambda f: f.key_split_ratio,
}


class _Families:
    """The families of one scrape, filled sample by sample in the catalogue's order."""

    def __init__(self, static_names: Sequence[str]) -> None:
        self._static_names = static_names
        self._families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for metric in METRICS:
            labels = [*metric.labels, *(static_names if "target" in metric.labels else ())]
            family = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            self._families[metric.name] = family(metric.full_name, metric.help, labels=labels)

    def add(
        self, name: str, labels: Mapping[str, str], value: float | Absent | None, *, created: float | None = None
    ) -> None:
        """Add a sample; an absent value adds nothing. Raises KeyError for what the catalogue lacks."""
        if value is None or isinstance(value, Absent):
            return
        metric, family = BY_NAME[name], self._families[name]
        names = [*metric.labels, *(self._static_names if "target" in metric.labels else ())]
        values = [labels.get(label, "") for label in names]
        if isinstance(family, CounterMetricFamily):
            family.add_metric(values, float(value), created=created)
        else:
            family.add_metric(values, float(value))

    def all(self) -> list[Metric]:
        """Return every family of the catalogue."""
        return list(self._families.values())

    def filled(self) -> Iterator[Metric]:
        """Yield the families that have samples."""
        return (family for family in self._families.values() if family.samples)


class StatusCollector(Collector):
    """Collect from what `statuses` returns at that moment. Safe in any thread."""

    def __init__(
        self,
        statuses: Callable[[], Sequence[TargetStatus]],
        *,
        windows: Sequence[Duration],
        is_targets_file_good: Callable[[], bool | None] = lambda: None,
    ) -> None:
        self._statuses = statuses
        self._windows = windows
        self._is_targets_file_good = is_targets_file_good

    def describe(self) -> Iterable[Metric]:
        """Return the names without a value, so that registration collects nothing."""
        return _Families(()).all()

    def collect(self) -> Iterator[Metric]:
        """Yield all families that have a sample."""
        statuses = self._statuses()
        families = _Families(sorted({name for status in statuses for name in status.state.labels}))
        families.add("build_info", {"version": __version__}, 1)
        families.add("targets_file_last_reload_success", {}, self._is_targets_file_good())
        for status in statuses:
            self._add_target(families, status)
        return families.filled()

    def _add_target(self, families: _Families, status: TargetStatus) -> None:
        state = status.state
        labels = {**state.labels, "target": state.target}
        families.add("up", labels, status.is_up)
        families.add("target_loading", labels, status.is_loading)
        families.add("poll_duration_seconds", labels, status.duration)
        families.add("last_success_timestamp_seconds", labels, status.last_success)
        for reason, count in status.errors.items():
            families.add("poll_errors_total", {**labels, "reason": reason}, count, created=status.began)
        for channel in state.channels:
            _add_channel(families, labels, channel, began=status.began)
        if status.is_stale or state.page is None:
            return
        info = {"dialect": state.page.dialect, "release": state.page.release or ""}
        families.add("source_info", {**labels, **info}, 1)
        for caveat in state.page.caveats:
            families.add("caveat", {**labels, "caveat": caveat.name}, 1)
        for engine in state.engines:
            names = {**labels, "model_name": engine.reading.model_name, "engine": engine.reading.engine}
            _add_counters(families, names, engine)
            _add_own(families, names, engine)
            families.add("engine_restarts_total", names, engine.restarts, created=engine.began)
            self._add_figures(families, names, engine)
            _add_diagnosis(families, names, engine)

    def _add_figures(self, families: _Families, names: Mapping[str, str], engine: EngineState) -> None:
        figures = None
        for span in self._windows:
            labels = {**names, "window": str(span)}
            window = engine.windows[span]
            families.add("window_coverage_ratio", labels, window.coverage if window else 0.0)
            figures = engine.figures(span, require_coverage=True)
            _add_residency(families, labels, figures.residency)
            _add_events(families, labels, figures)
            for name, figure in _OF_WINDOW.items():
                value = figure(figures)
                if isinstance(value, Estimate):
                    for bound in BOUNDS:
                        families.add(name, {**labels, "bound": bound}, getattr(value, bound))
                else:
                    families.add(name, labels, value)
        if figures is not None:
            families.add("requests_running", names, figures.requests_running)
            families.add("requests_waiting", names, _waiting(engine))
            families.add("pool_tokens", names, figures.pool_tokens)
            families.add("pool_filled", names, figures.pool_filled)
            families.add("prefix_caching_enabled", names, figures.caching_enabled)
            families.add("counters_frozen", names, engine.frozen is not None)
            families.add("events_sampling_ratio", names, engine.sampling_rate)


def _waiting(engine: EngineState) -> float | None:
    """Return how many requests wait: for capacity where the release tells, which is what pressure is about."""
    gauges = engine.reading.gauges
    return gauges.get("requests_waiting_by_reason/capacity", gauges.get("requests_waiting"))


def _add_diagnosis(families: _Families, names: Mapping[str, str], engine: EngineState) -> None:
    found = engine.held
    if not isinstance(found, Diagnosis):
        return
    for cause in Cause:
        families.add("diagnosis", {**names, "cause": cause}, cause is found.cause)
    families.add("diagnosis_confidence", names, CONFIDENCE[found.confidence])


def _add_residency(families: _Families, labels: Mapping[str, str], residency: Residency | Absent) -> None:
    if isinstance(residency, Absent):
        return
    for name, quantiles in (
        ("block_lifetime_seconds", residency.lifetime_seconds),
        ("block_idle_before_evict_seconds", residency.idle_seconds),
        ("block_reuse_gap_seconds", residency.reuse_gap_seconds),
    ):
        for quantile, value in quantiles.items():
            families.add(name, {**labels, "quantile": str(quantile)}, value)
    families.add("late_reuse_ratio", labels, residency.late_reuse_share)


def _add_events(families: _Families, labels: Mapping[str, str], figures: EngineFigures) -> None:
    whatif, counts = figures.whatif_avoidable_miss_ratio, figures.cache_events
    for pool, value in () if isinstance(whatif, Absent) else whatif.items():
        families.add("whatif_avoidable_miss_ratio", {**labels, "pool": pool}, value)
    lifetimes = counts if isinstance(counts, Absent) else counts.block_lifetime_seconds
    for quantile, value in () if isinstance(lifetimes, Absent) else lifetimes.items():
        families.add("cached_block_lifetime_seconds", {**labels, "quantile": quantile}, value)


def _add_channel(families: _Families, labels: Mapping[str, str], channel: ChannelStatus, *, began: float) -> None:
    names = {**labels, "rank": channel.engine}
    families.add("events_connected", names, channel.is_connected)
    families.add("events_lag_seconds", names, channel.lag)
    families.add("events_batches_total", names, channel.batches, created=began)
    families.add("events_missed_batches_total", names, channel.missed, created=began)
    for reason, count in channel.errors.items():
        families.add("events_errors_total", {**names, "reason": reason}, count, created=began)


def _add_own(families: _Families, names: Mapping[str, str], engine: EngineState) -> None:
    """Add the exporter's own counters, which start at 0 with the watch."""
    for name, key in _OWN.items():
        families.add(name, names, engine.own.get(key), created=engine.began)
    for name, key in _OWN_BOUNDED.items():
        for bound in BOUNDS:
            families.add(name, {**names, "bound": bound}, engine.own.get(f"{key}/{bound}"), created=engine.began)
    for pool in POOL_NAMES:
        families.add(
            "blocks_spared_total",
            {**names, "pool": pool},
            engine.own.get(f"blocks_spared/{pool}"),
            created=engine.began,
        )


def _add_counters(families: _Families, names: Mapping[str, str], engine: EngineState) -> None:
    """Pass the engine's counters through with its own `_created`: an exporter restart is no reset."""
    counters, created = engine.reading.counters, engine.reading.created
    for name, (key, origin) in _PASSED_THROUGH.items():
        families.add(name, names, counters.get(key), created=created.get(origin))
    finished = parts_of(counters, "requests_finished")
    if finished:
        began = created.get(f"requests_finished/{next(iter(finished))}")
        families.add("requests_finished_total", names, sum(finished.values()), created=began)
    by_source = parts_of(counters, _BY_SOURCE)
    for source, value in by_source.items():
        families.add(
            "prompt_tokens_total", {**names, "source": source}, value, created=created.get(f"{_BY_SOURCE}/{source}")
        )
    if not by_source:
        unsplit = {**names, "source": "unsplit"}
        families.add(
            "prompt_tokens_total", unsplit, counters.get("prompt_tokens"), created=created.get("prompt_tokens")
        )
