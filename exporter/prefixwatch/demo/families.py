"""The families of vLLM's /metrics, release by release.

The first and last releases of those that matter to a prefix cache are read from vLLM's source;
where a family does not, its first release here is the first at which it was seen.
"""

from prefixwatch.demo.family import Family, counter, gauge
from prefixwatch.demo.histograms import HISTOGRAMS
from prefixwatch.demo.releases import Version

_V1 = (0, 8, 0)
_V0_END = (0, 8, 0)
_TOKENS_NOT_BLOCKS = (0, 9, 0)
_TWINS_END = (0, 12, 0)
_SOURCES = ("source", ("local_compute", "local_cache_hit", "external_kv_transfer"))
_TIERS = ("source", ("device", "host", "p2p", "disk", "external_unspecified"))
_REASONS = ("finished_reason", ("stop", "length", "abort", "error", "repetition"))
_OLD_REASONS = ("finished_reason", ("stop", "length", "abort"))

_FLOPS = "(for Model Flops Utilization calculations)."
_SCHEDULER = (
    counter(
        "estimated_flops_per_gpu",
        f"Estimated number of floating point operations per GPU {_FLOPS}",
        since=(0, 25, 0),
    ),
    counter(
        "estimated_read_bytes_per_gpu",
        f"Estimated number of bytes read from memory per GPU {_FLOPS}",
        since=(0, 25, 0),
    ),
    counter(
        "estimated_write_bytes_per_gpu",
        f"Estimated number of bytes written to memory per GPU {_FLOPS}",
        since=(0, 25, 0),
    ),
    gauge("num_requests_running", "Number of requests in model execution batches."),
    gauge("num_requests_swapped", "Number of requests swapped to CPU.", until=_V0_END),
    gauge("num_requests_waiting", "Number of requests waiting to be processed."),
    gauge(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
        "Sum of all reasons equals vllm:num_requests_waiting.",
        label=("reason", ("capacity", "deferred")),
        since=(0, 25, 0),
    ),
    gauge(
        "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        label=("sleep_state", ("awake", "weights_offloaded", "discard_all")),
        since=(0, 11, 0),
    ),
    gauge(
        "gpu_cache_usage_perc",
        "GPU KV-cache usage. 1 means 100 percent usage.",
        reads="vllm:kv_cache_usage_perc",
        until=_TWINS_END,
    ),
    gauge(
        "kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        since=_TOKENS_NOT_BLOCKS,
    ),
)

_CACHE = (
    gauge("cpu_cache_usage_perc", "CPU KV-cache usage. 1 means 100 percent usage.", until=_V0_END),
    gauge("cpu_prefix_cache_hit_rate", "CPU prefix cache block hit rate.", until=_V0_END),
    gauge("gpu_prefix_cache_hit_rate", "GPU prefix cache block hit rate.", until=_V0_END),
    counter(
        "gpu_prefix_cache_queries",
        "GPU prefix cache queries, in terms of number of queried blocks.",
        reads="query blocks",
        since=_V1,
        until=_TOKENS_NOT_BLOCKS,
    ),
    counter(
        "gpu_prefix_cache_hits",
        "GPU prefix cache hits, in terms of number of cached blocks.",
        reads="hit blocks",
        since=_V1,
        until=_TOKENS_NOT_BLOCKS,
    ),
    counter(
        "gpu_prefix_cache_queries",
        "GPU prefix cache queries, in terms of number of queried tokens. "
        "DEPRECATED: Use vllm:prefix_cache_queries instead.",
        reads="vllm:prefix_cache_queries",
        since=_TOKENS_NOT_BLOCKS,
        until=_TWINS_END,
    ),
    counter(
        "gpu_prefix_cache_hits",
        "GPU prefix cache hits, in terms of number of cached tokens. DEPRECATED: Use vllm:prefix_cache_hits instead.",
        reads="vllm:prefix_cache_hits",
        since=_TOKENS_NOT_BLOCKS,
        until=_TWINS_END,
    ),
    counter(
        "prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        since=_TOKENS_NOT_BLOCKS,
    ),
    counter(
        "prefix_cache_hits",
        "Prefix cache hits, in terms of number of cached tokens.",
        since=_TOKENS_NOT_BLOCKS,
    ),
    counter(
        "external_prefix_cache_queries",
        "External prefix cache queries from KV connector cross-instance cache sharing, "
        "in terms of number of queried tokens.",
        since=(0, 11, 2),
    ),
    counter(
        "external_prefix_cache_hits",
        "External prefix cache hits from KV connector cross-instance cache sharing, "
        "in terms of number of cached tokens.",
        since=(0, 11, 2),
    ),
    counter(
        "mm_cache_queries",
        "Multi-modal cache queries, in terms of number of queried items.",
        since=(0, 11, 2),
    ),
    counter(
        "mm_cache_hits",
        "Multi-modal cache hits, in terms of number of cached items.",
        since=(0, 11, 2),
    ),
)

_TOKENS = (
    counter("num_preemptions", "Cumulative number of preemption from the engine."),
    counter("prompt_tokens", "Number of prefill tokens processed."),
    counter("prompt_tokens_by_source", "Number of prompt tokens by source.", label=_SOURCES, since=(0, 16, 0)),
    counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", since=(0, 16, 0)),
    counter(
        "prompt_tokens_recomputed",
        "Number of cached tokens recomputed for forward pass.",
        since=(0, 16, 0),
        until=(0, 19, 0),
    ),
    counter(
        "prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), "
        "host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or "
        "external_unspecified. Counted at admission; sums to "
        "vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        label=_TIERS,
        since=(0, 32, 0),
    ),
    counter("generation_tokens", "Number of generation tokens processed."),
    counter("request_success", "Count of successfully processed requests.", label=_OLD_REASONS, until=(0, 25, 0)),
    counter("request_success", "Count of successfully processed requests.", label=_REASONS, since=(0, 25, 0)),
    counter(
        "admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        label=("reason", ("max_num_queued_reqs", "max_num_queued_tokens")),
        is_per_engine=False,
        since=(0, 32, 0),
    ),
)

FAMILIES: tuple[Family, ...] = (
    *_SCHEDULER,
    *_CACHE,
    *_TOKENS,
    *HISTOGRAMS,
)


def families_of(version: Version, *, with_residency: bool) -> list[Family]:
    """Return the families of a release's page, in the page's order."""
    return [family for family in FAMILIES if family.is_in(version) and (with_residency or not family.needs_residency)]
