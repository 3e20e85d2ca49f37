"""Every exported metric: name, type, HELP and labels.

The collector, METRICS.md, the dashboards, the rules and the tests read this table; nothing knows
a metric's name from elsewhere.
"""

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "prefixwatch_"
ENGINE_LABELS = ("target", "model_name", "engine")
RESERVED_LABELS = frozenset(
    {
        *ENGINE_LABELS,
        "window",
        "bound",
        "source",
        "cause",
        "caveat",
        "reason",
        "quantile",
        "dialect",
        "release",
        "pool",
        "rank",
        "dns",
    }
    | {"le", "version", "job", "instance"}
)


class Kind(StrEnum):
    """Prometheus's type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Group(StrEnum):
    """Where a metric's value comes from, and what may be done with it."""

    ENGINE = "Passed through from the engine"
    EXPORTER = "The exporter's own counters"
    WINDOW = "Gauges of a window"
    STATE = "State"


class Stability(StrEnum):
    """Whether name and meaning may still change."""

    STABLE = "stable"
    EXPERIMENTAL = "experimental"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `name` without prefix, a counter's with `_total`; `labels` beside the static ones.

    `series_per_engine` bounds how many series one engine (or target) has of it, at three windows.
    """

    name: str
    kind: Kind
    group: Group
    help: str
    labels: tuple[str, ...] = ENGINE_LABELS
    stability: Stability = Stability.STABLE
    series_per_engine: int = 1

    @property
    def full_name(self) -> str:
        """The name as Prometheus sees it."""
        return PREFIX + self.name


_OF_WINDOW = " A gauge of a window: for one engine; do not average, divide sums of counters instead."
_WINDOWS = 3
_BOUNDS = 3


def _engine(name: str, text: str, labels: tuple[str, ...] = (), series: int = 1) -> Metric:
    return Metric(
        name=name, kind=Kind.COUNTER, group=Group.ENGINE, help=text,
        labels=(*ENGINE_LABELS, *labels), series_per_engine=series,
    )  # fmt: skip


def _own(name: str, text: str, labels: tuple[str, ...] = (), series: int = 1) -> Metric:
    return Metric(
        name=name, kind=Kind.COUNTER, group=Group.EXPORTER, help=text,
        labels=(*ENGINE_LABELS, *labels), series_per_engine=series,
    )  # fmt: skip


def _window(name: str, text: str, labels: tuple[str, ...] = (), series: int = 1) -> Metric:
    return Metric(
        name=name, kind=Kind.GAUGE, group=Group.WINDOW, help=text + _OF_WINDOW,
        labels=(*ENGINE_LABELS, "window", *labels), series_per_engine=series * _WINDOWS,
    )  # fmt: skip


def _state(name: str, text: str, labels: tuple[str, ...] = ENGINE_LABELS, series: int = 1) -> Metric:
    return Metric(
        name=name, kind=Kind.GAUGE, group=Group.STATE, help=text, labels=labels, series_per_engine=series
    )  # fmt: skip


METRICS: tuple[Metric, ...] = (
    _engine("queried_tokens_total", "Prompt tokens looked up in the prefix cache (vLLM's prefix_cache_queries)."),
    _engine("hit_tokens_total", "Of these, tokens found in the prefix cache (vLLM's prefix_cache_hits)."),
    _engine("external_queried_tokens_total", "Prompt tokens looked up in a KV connector (external_prefix_cache_queries)."),
    _engine("external_hit_tokens_total", "Of these, tokens found in the KV connector (external_prefix_cache_hits)."),
    _engine(
        "prompt_tokens_total",
        "Prompt tokens at first token by where they came from: computed, local_cache or external"
        " (prompt_tokens_by_source; unsplit before 0.16, from prompt_tokens).",
        ("source",),
        5,
    ),
    _engine("generation_tokens_total", "Generated tokens (generation_tokens)."),
    _engine("preemptions_total", "Preempted requests (num_preemptions)."),
    _engine("requests_finished_total", "Finished requests, whatever the reason (request_success)."),
    _engine("first_tokens_total", "Requests that got their first token (time_to_first_token_seconds)."),
    _engine("first_token_seconds_total", "Request-seconds from arrival to first token (time_to_first_token_seconds)."),
    _engine("queue_seconds_total", "Request-seconds in the queue of finished requests (request_queue_time_seconds)."),
    _engine("prefill_seconds_total", "Request-seconds of prefill of finished requests (request_prefill_time_seconds)."),
    _engine("inference_seconds_total", "Request-seconds of inference of finished requests (request_inference_time_seconds)."),
    _own("requests_observed_total", "Finished requests of which the exporter could say something: the denominator of the next four."),
    _own("request_hit_ratio_sum_total", "Sum over requests of cached / prompt tokens: divide by requests_observed.", ("bound",), _BOUNDS),
    _own("cold_requests_total", "Requests that got nothing from the cache.", ("bound",), _BOUNDS),
    _own("full_requests_total", "Requests with something cached and at most one block computed.", ("bound",), _BOUNDS),
    _own("mostly_cached_requests_total", "Requests with at least half of their prompt cached.", ("bound",), _BOUNDS),
    _own("observed_prompt_tokens_total", "Prompt tokens of the observed requests."),
    _own("observed_cached_tokens_total", "Cached prompt tokens of the observed requests."),
    _own("cacheable_tokens_total", "The most of the observed prompt tokens that a cache could have served, by whole blocks: divide by observed_prompt_tokens.", ("bound",), _BOUNDS),
    _own("written_tokens_total", "Tokens written into the KV pool since the exporter started: computed, loaded, generated."),
    _own("prefill_saved_seconds_total", "Request-seconds of prefill that cached tokens saved, where what a token costs could be fitted."),
    _own("blocks_stored_total", "Blocks stored in the KV pool, as the engine's cache events say (BlockStored)."),
    _own("blocks_removed_total", "Cached blocks evicted from the KV pool (BlockRemoved events)."),
    _own(
        "blocks_stored_again_total",
        "Blocks stored again after they were evicted: misses that a larger pool would have avoided. Divide by blocks_stored."
        " An estimate where events_sampling_ratio is below 1.",
    ),
    _own(
        "blocks_spared_total",
        "Of the blocks stored again, those that a pool of 1.5, 2 or 4 times the size would still have held. Take them from"
        " blocks_stored_again and blocks_stored for that pool's avoidable-miss ratio.",
        ("pool",), 3,
    ),
    _own("blocks_key_split_total", "Blocks whose tokens had been stored at the same place of a prompt under another salt or adapter."),
    _own("blocks_placed_total", "Blocks whose place in the prompt is known: the denominator of blocks_key_split."),
    _own("engine_restarts_total", "Restarts of the engine seen since the exporter started."),
    _window("token_hit_ratio", "Hit per queried token, 0..1 (the engine's counter pair)."),
    _window("external_hit_ratio", "Hit per queried token of the KV connector, 0..1."),
    _window("cached_prompt_ratio", "Cached (local and external) per prompt token, 0..1."),
    _window("request_hit_ratio", "Mean over finished requests of cached / prompt tokens, 0..1, estimated from pooled counts.", ("bound",), _BOUNDS),
    _window("hit_ratio_gap", "Cached share of the finished requests' prompt tokens, less their request hit ratio; -1..1."),
    _window("hit_ratio_ceiling", "The highest token hit ratio that the prompt lengths allow, 0..1.", ("bound",), _BOUNDS),
    _window("output_per_prompt_token", "Generated per prompt token."),
    _window("prefill_share_ratio", "Share of finished requests' inference time that was prefill, 0..1."),
    _window("prefill_saved_ratio", "Prefill time saved / inference time without the cache, 0..1: what caching is worth."),
    _window("block_lifetime_seconds", "Quantiles of evicted blocks' lifetime (vLLM's --kv-cache-metrics, sampled).", ("quantile",), 3),
    _window("block_idle_before_evict_seconds", "Quantiles of how long evicted blocks had been idle (sampled).", ("quantile",), 3),
    _window("block_reuse_gap_seconds", "Quantiles of the time between two uses of evicted blocks (sampled).", ("quantile",), 3),
    _window("late_reuse_ratio", "Share of reuses after at least half the time that an idle block survives, 0..1: many mean that others come too late."),
    _window("turnover_seconds", "Time to write the whole KV pool over: pool tokens / written tokens a second."),
    _window("kv_usage_max_ratio", "Highest share of KV blocks held by running requests, 0..1. Cached blocks that none holds do not count."),
    _window("avoidable_miss_ratio", "Stored again after eviction / stored blocks, 0..1 (cache events)."),
    _window("working_set_ratio", "Different blocks stored in the window / blocks of the pool (cache events). Hits are not announced, so blocks that stay cached are not in it."),
    _window(
        "whatif_avoidable_miss_ratio",
        "The avoidable-miss ratio to expect of a pool of 1.5, 2 or 4 times the size on the same requests, 0..1, by stack distance"
        " of blocks stored again. It cannot see hits, which are not announced, nor that a larger pool would let more requests"
        " run at once and finish in another order; blocks evicted more than 11 pools ago may be forgotten.",
        ("pool",), 3,
    ),
    _window("key_split_ratio", "Blocks whose tokens had been stored at the same place of a prompt under another salt or adapter / blocks whose place is known, 0..1 (cache events)."),
    _window("cached_block_lifetime_seconds", "Quantiles of how long evicted blocks were cached, from store to eviction, within 5 % (cache events).", ("quantile",), 3),
    _window("window_coverage_ratio", "How much of the window has been seen, 0..1. Below 0.9 its other gauges are absent."),
    _state("requests_running", "Requests that run now."),
    _state("requests_waiting", "Requests that wait now: for room in the KV pool, where the release says so (0.32), else for whatever reason."),
    _state("pool_tokens", "Size of the KV pool in tokens."),
    _state("pool_filled", "1 if as much was written since the engine's start as the pool holds, else 0."),
    _state("prefix_caching_enabled", "1 if the engine caches prefixes, 0 if not."),
    _state("counters_frozen", "1 if requests are served while the counters stand still, else 0."),
    _state("diagnosis", "1 for the cause that the diagnosis window points to, 0 for the others.", (*ENGINE_LABELS, "cause"), 10),
    _state("diagnosis_confidence", "How sure the diagnosis is: 0.2 low, 0.5 medium, 1 high."),
    _state("source_info", "What the target speaks.", ("target", "dialect", "release")),
    _state("caveat", "1 for each thing known to skew this target's figures.", ("target", "caveat"), 4),
    _state("up", "1 if the last poll of the target gave a page that could be used, else 0.", ("target",)),
    _state("target_loading", "1 while the target has not answered yet since the exporter started, else 0.", ("target",)),
    _state("poll_duration_seconds", "How long the last poll took.", ("target",)),
    _state("last_success_timestamp_seconds", "When a poll last gave a page that could be used, unix seconds.", ("target",)),
    Metric(
        name="poll_errors_total", kind=Kind.COUNTER, group=Group.STATE,
        help="Polls that gave nothing to use, by reason.", labels=("target", "reason"), series_per_engine=20,
    ),
    _state("events_sampling_ratio", "Share of blocks, by hash, that figures from cache events are taken from, 0..1."),
    _state("events_connected", "1 while connected to the endpoint where an engine publishes its cache events, else 0.", ("target", "rank")),
    _state("events_lag_seconds", "How much longer than the fastest the newest cache events were on their way: above 5 the exporter falls behind.", ("target", "rank")),
    Metric(
        name="events_batches_total", kind=Kind.COUNTER, group=Group.STATE,
        help="Batches of cache events that were read.", labels=("target", "rank"),
    ),
    Metric(
        name="events_missed_batches_total", kind=Kind.COUNTER, group=Group.STATE,
        help="Batches of cache events that were lost: gaps in the sequence that no replay endpoint filled.",
        labels=("target", "rank"),
    ),
    Metric(
        name="events_errors_total", kind=Kind.COUNTER, group=Group.STATE,
        help="What went wrong with cache events, by reason: unreachable, disconnected, not_a_publisher, malformed_message,"
        " malformed_event, gap, behind, rank_twice, internal.",
        labels=("target", "rank", "reason"), series_per_engine=4,
    ),
    Metric(
        name="targets_file_last_reload_success", kind=Kind.GAUGE, group=Group.STATE,
        help="1 if the targets file was read without a fault the last time it changed, else 0.",
        labels=(), series_per_engine=0,
    ),
    Metric(
        name="dns_addresses", kind=Kind.GAUGE, group=Group.STATE,
        help="Addresses known behind a configured DNS name, each a target. 0: nothing of it is watched.",
        labels=("dns",), series_per_engine=0,
    ),
    Metric(
        name="build_info", kind=Kind.GAUGE, group=Group.STATE, help="The exporter's version.",
        labels=("version",), series_per_engine=0,
    ),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in METRICS}


def budget() -> int:
    """Return how many series one engine with one target may have, at three windows."""
    return sum(metric.series_per_engine for metric in METRICS)
