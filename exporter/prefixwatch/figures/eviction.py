"""The KV pool: its size, how fast it is written over, and whether it was ever full.

Under LRU a cached block that nobody touches survives about pool / written tokens a second: freed
blocks go to the tail of the queue of free blocks, and are taken from its head
(vllm/v1/core/block_pool.py).
"""

from collections.abc import Mapping

from prefixwatch.figures.figure import Absent
from prefixwatch.figures.ratios import CACHED_SOURCES, cached_and_prompt_tokens, prompt_tokens_by_source
from prefixwatch.page.reading import CacheConfig

_SLEEPING = ("weights_offloaded", "discard_all")


def pool_tokens(config: CacheConfig) -> int | Absent:
    """Return the pool in tokens."""
    if config.pool_tokens is not None:
        return config.pool_tokens
    if config.is_hybrid:
        return Absent("a hybrid model, whose blocks do not say the pool's size (stated from vLLM 0.25)")
    return Absent("the page does not state the size of the pool")


def written_tokens(increases: Mapping[str, float]) -> float | Absent:
    """Return tokens written into the pool: computed and externally loaded prompt tokens, and generated ones."""
    generated = increases.get("generation_tokens")
    if generated is None:
        return Absent("no generation tokens counter on this page")
    sources = prompt_tokens_by_source(increases)
    if not isinstance(sources, Absent) and not sources.keys() <= CACHED_SOURCES:
        return sum(sources.values()) - sources.get("local_cache", 0.0) + generated
    cached, prompt = cached_and_prompt_tokens(increases)
    if not isinstance(cached, Absent):
        return max(0.0, prompt - cached) + generated
    total, hit = increases.get("prompt_tokens"), increases.get("hit_tokens")
    if total is None or hit is None:
        return Absent("no counters that tell computed from cached prompt tokens")
    return max(0.0, total - hit) + generated


def turnover_seconds(pool: float | Absent, written: float | Absent, seconds: float | Absent) -> float | Absent:
    """Return how long it takes to write the whole pool over: pool / written tokens a second.

    It is the mean residence of a block, and an upper limit on how long an untouched one survives.
    """
    if isinstance(pool, Absent):
        return pool
    if isinstance(written, Absent):
        return written
    if isinstance(seconds, Absent):
        return seconds
    if written <= 0:
        return Absent("nothing was written into the pool")
    return pool * seconds / written


def is_pool_filled(pool: float | Absent, since_start: Mapping[str, float], *, was_emptied: bool) -> bool | Absent:
    """Say whether as much was written since the engine's start as the pool holds.

    False makes eviction unlikely. `since_start`: the counters as the page states them.
    `was_emptied`: the engine slept, or its cache was seen to be cleared, so that nothing can be said.
    """
    if isinstance(pool, Absent):
        return pool
    if was_emptied:
        return Absent("the engine slept or its cache was cleared: how full the pool is cannot be told")
    written = written_tokens(since_start)
    return written if isinstance(written, Absent) else written >= pool


def is_asleep(gauges: Mapping[str, float]) -> bool:
    """Say whether the engine sleeps, and may have discarded its cache."""
    return any(gauges.get(f"sleep_state/{state}", 0.0) > 0 for state in _SLEEPING)
