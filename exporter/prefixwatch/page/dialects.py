"""The table of dialects: every name, unit and caveat of vLLM's pages, by engine and release.

Everything after this module knows canonical quantities only. Names and meanings were read from
vLLM's own source (vllm/v1/metrics/loggers.py and stats.py, 0.8.5 to 0.32.0).

A canonical *counter* never falls within one engine process; the parts of a histogram are
counters too: `request_prompt_tokens` gives `request_prompt_tokens/count`, `/sum` and one
`/le/EDGE` a bucket. A canonical *gauge* is a value of the moment.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

PREFIXES = {
    "vllm:": "vllm",
    "vllm_": "vllm",  # a collector rewrote the colons
    "ray_vllm:": "ray",  # Ray Serve
    "ray_vllm_": "ray",
    "kserve_vllm:": "kserve",  # OpenShift AI
    "kserve_vllm_": "kserve",
}
"""How each spelling of the family names begins, and the dialect it is called by."""

# Names that stand for one quantity, newest first. They are twins: only the first that has a
# sample counts, they are never added. Lookups under an OLD name may be in blocks.
COUNTERS: dict[str, tuple[str, ...]] = {
    "queried": ("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "hit": ("prefix_cache_hits", "gpu_prefix_cache_hits"),
    "external_queried_tokens": ("external_prefix_cache_queries",),
    "external_hit_tokens": ("external_prefix_cache_hits",),
    "prompt_tokens": ("prompt_tokens",),
    "cached_prompt_tokens": ("prompt_tokens_cached",),
    "generation_tokens": ("generation_tokens",),
    "preemptions": ("num_preemptions",),
}
GAUGES: dict[str, tuple[str, ...]] = {
    "kv_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "lifetime_hit_rate": ("gpu_prefix_cache_hit_rate",),  # V0 engine; -1 means caching is off
}
# Counters and gauges that stand once for each value of a label: quantity, name, label.
SPLIT_COUNTERS: dict[str, tuple[str, str]] = {
    "prompt_tokens_by_source": ("prompt_tokens_by_source", "source"),
    "requests_finished": ("request_success", "finished_reason"),
}
SPLIT_GAUGES: dict[str, tuple[str, str]] = {
    "requests_waiting_by_reason": ("num_requests_waiting_by_reason", "reason"),
    "sleep_state": ("engine_sleep_state", "sleep_state"),
}
HISTOGRAMS: dict[str, str] = {
    "request_prompt_tokens": "request_prompt_tokens",
    "request_computed_tokens": "request_prefill_kv_computed_tokens",
    "block_lifetime_seconds": "kv_block_lifetime_seconds",
    "block_idle_seconds": "kv_block_idle_before_evict_seconds",
    "block_reuse_gap_seconds": "kv_block_reuse_gap_seconds",
}
# Histograms of which only the sum and the count are wanted.
SUMMARIES: dict[str, str] = {
    "time_to_first_token_seconds": "time_to_first_token_seconds",
    "queue_seconds": "request_queue_time_seconds",
    "prefill_seconds": "request_prefill_time_seconds",
    "inference_seconds": "request_inference_time_seconds",
    "samples_per_request": "request_params_n",
}
CONFIG = "cache_config_info"

SOURCES = {
    "local_compute": "computed",
    "local_cache_hit": "local_cache",
    "external_kv_transfer": "external",
}
"""Where a prompt token came from: vLLM's word and ours. A word that is not here is kept as it is."""

CACHED_SOURCES = frozenset({"local_cache", "external"})

LOOKUPS = ("queried", "hit")

ENGINE_GAUGES = frozenset({"kv_usage", "requests_running", "requests_waiting"})
"""What an engine states once, whatever adapters it serves: tells engines from adapters."""


class Role(StrEnum):
    """What a sample is to its quantity."""

    VALUE = "value"
    CREATED = "created"
    SUM = "sum"
    COUNT = "count"
    BUCKET = "bucket"
    SPLIT = "split"
    CONFIG = "config"
    PROCESS_START = "process_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What the samples of one whole name mean.

    `spelling` is how the name begins (a key of `PREFIXES`, empty for what is the process's own),
    `rank` orders twins (0 is the newest name), `label` is what splits a quantity. `is_bare`: the
    name of a counter without `_total`, which is a twin of the one with it.
    """

    spelling: str
    quantity: str
    role: Role
    is_counter: bool
    rank: int = 0
    label: str | None = None
    is_bare: bool = False


def _counter(spelling: str, name: str, quantity: str, rank: int = 0, label: str | None = None) -> dict[str, Meaning]:
    """Name the samples of a counter: with `_total`, by some collectors without, and `_created` beside it."""
    shared = Meaning(spelling=spelling, quantity=quantity, role=Role.VALUE, is_counter=True, rank=rank, label=label)
    value = replace(shared, role=Role.SPLIT if label else Role.VALUE)
    full = spelling + name
    return {
        full + "_total": value,
        full: replace(value, is_bare=True),
        full + "_created": replace(shared, role=Role.CREATED),
    }


def _histogram(spelling: str, name: str, quantity: str, *, with_buckets: bool) -> dict[str, Meaning]:
    suffixes = {"_sum": Role.SUM, "_count": Role.COUNT, "_created": Role.CREATED}
    if with_buckets:
        suffixes["_bucket"] = Role.BUCKET
    return {
        spelling + name + suffix: Meaning(spelling=spelling, quantity=quantity, role=role, is_counter=True)
        for suffix, role in suffixes.items()
    }


def _spelled(spelling: str) -> dict[str, Meaning]:
    names: dict[str, Meaning] = {}
    for quantity, twins in COUNTERS.items():
        for rank, name in enumerate(twins):
            names |= _counter(spelling, name, quantity, rank)
    for quantity, (name, label) in SPLIT_COUNTERS.items():
        names |= _counter(spelling, name, quantity, label=label)
    for quantity, name in HISTOGRAMS.items():
        names |= _histogram(spelling, name, quantity, with_buckets=True)
    for quantity, name in SUMMARIES.items():
        names |= _histogram(spelling, name, quantity, with_buckets=False)
    gauge = Meaning(spelling=spelling, quantity="", role=Role.VALUE, is_counter=False)
    for quantity, twins in GAUGES.items():
        for rank, name in enumerate(twins):
            names[spelling + name] = replace(gauge, quantity=quantity, rank=rank)
    for quantity, (name, label) in SPLIT_GAUGES.items():
        names[spelling + name] = replace(gauge, quantity=quantity, role=Role.SPLIT, label=label)
    names[spelling + CONFIG] = replace(gauge, quantity=CONFIG, role=Role.CONFIG)
    return names


_PROCESS_START = Meaning(spelling="", quantity="process_start", role=Role.PROCESS_START, is_counter=False)

NAMES: dict[str, Meaning] = {"process_start_time_seconds": _PROCESS_START}
"""Every wanted sample name, whole, and what it means."""
for _spelling in PREFIXES:
    NAMES |= _spelled(_spelling)

FAMILIES = frozenset(
    name.removesuffix("_sum")
    for name, meaning in NAMES.items()
    if meaning.role not in (Role.CREATED, Role.COUNT, Role.BUCKET)
)
"""Every wanted family, as TYPE and HELP lines name it, in either format."""


def is_wanted(name: str) -> bool:
    """Say whether `name`, of a sample or of a family, is one that the table knows."""
    return name in NAMES or name in FAMILIES


def spelling_of(name: str) -> str:
    """Return how a family's name begins: a key of `PREFIXES`, or nothing for another engine's."""
    return next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
