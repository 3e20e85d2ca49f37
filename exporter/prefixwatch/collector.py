"""Statuses of targets to metric families, by the catalogue.

Families are built anew at each scrape from immutable statuses: nothing is set and kept, so no
label value outlives what it named.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from operator import attrgetter

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from prefixwatch import __version__
from prefixwatch.diagnosis import CONFIDENCE, Cause, Diagnosis
from prefixwatch.discovery import DnsName
from prefixwatch.enginestate import EngineState
from prefixwatch.eventchannel import ChannelStatus
from prefixwatch.families import Families, Labels, MetricFamilies, TextFamilies
from prefixwatch.figures.engine import WindowFigures
from prefixwatch.figures.events import POOL_NAMES
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.requestlevel import BOUNDS
from prefixwatch.figures.residency import QUANTILES, Residency
from prefixwatch.page.reading import parts_of
from prefixwatch.settings import Duration
from prefixwatch.targetpoller import TargetStatus

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

# A metric of a window and the figure that it is, of one value or with bounds.
_OF_WINDOW = {
    "token_hit_ratio": "token_hit_ratio",
    "external_hit_ratio": "external_hit_ratio",
    "cached_prompt_ratio": "cached_prompt_ratio",
    "hit_ratio_gap": "hit_ratio_gap",
    "output_per_prompt_token": "output_per_prompt_token",
    "prefill_share_ratio": "prefill_share",
    "prefill_saved_ratio": "prefill_saved_share",
    "turnover_seconds": "turnover_seconds",
    "kv_usage_max_ratio": "kv_usage_max",
    "avoidable_miss_ratio": "avoidable_miss_ratio",
    "working_set_ratio": "working_set_ratio",
    "key_split_ratio": "key_split_ratio",
}
_figures_of_window = attrgetter(*_OF_WINDOW.values())


class StatusCollector(Collector):
    """Collect from what `statuses` returns at that moment. Safe in any thread."""

    def __init__(
        self,
        statuses: Callable[[], Sequence[TargetStatus]],
        *,
        windows: Sequence[Duration],
        is_targets_file_good: Callable[[], bool | None] = lambda: None,
        dns_names: Callable[[], Sequence[DnsName]] = tuple,
    ) -> None:
        self._statuses = statuses
        self._windows = {span: str(span) for span in windows}
        self._is_targets_file_good = is_targets_file_good
        self._dns_names = dns_names

    def collect(self) -> Iterator[Metric]:
        """Yield all families that have a sample, for a registry of `prometheus_client`."""
        families = MetricFamilies()
        self._fill(families)
        return families.filled()

    def text(self, *, is_openmetrics: bool, names: Collection[str] | None = None) -> bytes:
        """Return the text of the same, much faster. `names`: only the samples called so."""
        return b"".join(self.pieces(is_openmetrics=is_openmetrics, names=names))

    def pieces(self, *, is_openmetrics: bool, names: Collection[str] | None = None) -> list[bytes | bytearray]:
        """Return that text piece by piece."""
        families = TextFamilies(is_openmetrics=is_openmetrics, names=names)
        self._fill(families)
        return families.pieces()

    def _fill(self, families: Families) -> None:
        statuses = self._statuses()
        families.add("build_info", Labels({"version": __version__}), 1)
        families.add("targets_file_last_reload_success", Labels(), self._is_targets_file_good())
        names = self._dns_names()
        labelled = [*(status.state.labels for status in statuses), *(found.labels for found in names)]
        every_static: dict[str, str] = dict.fromkeys((name for labels in labelled for name in labels), "")
        for found in names:
            families.add("dns_addresses", Labels({**every_static, **found.labels, "dns": found.name}), found.addresses)
        for status in statuses:
            state = status.state
            self._add_target(families, status, Labels({**every_static, **state.labels, "target": state.target}))

    def _add_target(self, families: Families, status: TargetStatus, labels: Labels) -> None:
        state = status.state
        families.add("up", labels, status.is_up)
        families.add("target_loading", labels, status.is_loading)
        families.add("poll_duration_seconds", labels, status.duration)
        families.add("last_success_timestamp_seconds", labels, status.last_success)
        for reason, count in status.errors.items():
            families.add("poll_errors_total", labels.plus("reason", reason), count, created=status.began)
        for channel in state.channels:
            _add_channel(families, labels, channel, began=status.began)
        if status.is_stale or state.page is None:
            return
        source = labels.plus("dialect", state.page.dialect).plus("release", state.page.release or "")
        families.add("source_info", source, 1)
        for caveat in state.page.caveats:
            families.add("caveat", labels.plus("caveat", caveat.name), 1)
        for engine in state.engines:
            names = labels.plus("model_name", engine.reading.model_name).plus("engine", engine.reading.engine)
            _add_counters(families, names, engine)
            _add_own(families, names, engine)
            families.add("engine_restarts_total", names, engine.restarts, created=engine.began)
            self._add_figures(families, names, engine)
            _add_diagnosis(families, names, engine)

    def _add_figures(self, families: Families, names: Labels, engine: EngineState) -> None:
        figures = None
        for span, text in self._windows.items():
            labels = names.plus("window", text)
            families.add("window_coverage_ratio", labels, engine.past.coverage(span))
            figures = engine.window_figures(span, require_coverage=True)
            _add_residency(families, labels, figures.residency)
            _add_events(families, labels, figures)
            _add_estimate(families, "request_hit_ratio", labels, figures.request_hit_ratio)
            _add_estimate(families, "hit_ratio_ceiling", labels, figures.hit_ratio_ceiling)
            for name, value in zip(_OF_WINDOW, _figures_of_window(figures), strict=True):
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


def _add_diagnosis(families: Families, names: Labels, engine: EngineState) -> None:
    found = engine.held
    if not isinstance(found, Diagnosis):
        return
    for cause in Cause:
        families.add("diagnosis", names.plus("cause", cause), cause is found.cause)
    families.add("diagnosis_confidence", names, CONFIDENCE[found.confidence])


def _add_estimate(families: Families, name: str, labels: Labels, figure: Estimate | Absent) -> None:
    if not isinstance(figure, Absent):
        families.add(name, labels.plus("bound", "estimate"), figure.estimate)
        families.add(name, labels.plus("bound", "lower"), figure.lower)
        families.add(name, labels.plus("bound", "upper"), figure.upper)


def _add_residency(families: Families, labels: Labels, residency: Residency | Absent) -> None:
    if isinstance(residency, Absent):
        return
    for share in QUANTILES:
        of_share = labels.plus("quantile", str(share))
        families.add("block_lifetime_seconds", of_share, residency.lifetime_seconds[share])
        families.add("block_idle_before_evict_seconds", of_share, residency.idle_seconds[share])
        families.add("block_reuse_gap_seconds", of_share, residency.reuse_gap_seconds.get(share))
    families.add("late_reuse_ratio", labels, residency.late_reuse_share)


def _add_events(families: Families, labels: Labels, figures: WindowFigures) -> None:
    whatif, counts = figures.whatif_avoidable_miss_ratio, figures.cache_events
    for pool, value in () if isinstance(whatif, Absent) else whatif.items():
        families.add("whatif_avoidable_miss_ratio", labels.plus("pool", pool), value)
    lifetimes = counts if isinstance(counts, Absent) else counts.block_lifetime_seconds
    for quantile, value in () if isinstance(lifetimes, Absent) else lifetimes.items():
        families.add("cached_block_lifetime_seconds", labels.plus("quantile", quantile), value)


def _add_channel(families: Families, labels: Labels, channel: ChannelStatus, *, began: float) -> None:
    names = labels.plus("rank", channel.engine)
    families.add("events_connected", names, channel.is_connected)
    families.add("events_lag_seconds", names, channel.lag)
    families.add("events_batches_total", names, channel.batches, created=began)
    families.add("events_missed_batches_total", names, channel.missed, created=began)
    for reason, count in channel.errors.items():
        families.add("events_errors_total", names.plus("reason", reason), count, created=began)


def _add_own(families: Families, names: Labels, engine: EngineState) -> None:
    """Add the exporter's own counters, which start at 0 with the watch."""
    own = engine.own
    for name, key in _OWN.items():
        families.add(name, names, own.get(key), created=engine.began)
    for bound in BOUNDS:
        labels = names.plus("bound", bound)
        for name, key in _OWN_BOUNDED.items():
            families.add(name, labels, own.get(f"{key}/{bound}"), created=engine.began)
    for pool in POOL_NAMES:
        spared = own.get(f"blocks_spared/{pool}")
        if spared is not None:
            families.add("blocks_spared_total", names.plus("pool", pool), spared, created=engine.began)


def _add_counters(families: Families, names: Labels, engine: EngineState) -> None:
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
        began = created.get(f"{_BY_SOURCE}/{source}")
        families.add("prompt_tokens_total", names.plus("source", source), value, created=began)
    if not by_source:
        total, began = counters.get("prompt_tokens"), created.get("prompt_tokens")
        families.add("prompt_tokens_total", names.plus("source", "unsplit"), total, created=began)
