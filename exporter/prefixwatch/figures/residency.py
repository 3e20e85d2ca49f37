"""How long blocks stay in the pool, from vLLM's opt-in histograms (`--kv-cache-metrics`).

Each sampled block gives one observation at its eviction: its lifetime, how long it had been idle,
and the gaps between its uses. Two things to know of them (vllm/v1/core/kv_cache_metrics.py): they
see blocks that were never in the cache, since a finished request hands back its last, partly filled
block, whose next use counts as an eviction; and they are sampled, at a rate the page does not state.
A gap lies between two uses after the first: a block that was found in the cache at most once before its
eviction adds none.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prefixwatch.figures.eviction import written_tokens
from prefixwatch.figures.figure import Absent, ratio
from prefixwatch.page.reading import Histogram, histogram_of

QUANTILES = (0.5, 0.9, 0.99)
LATE = 0.5
"""A gap this share of the median idle time before eviction, or longer, is a late reuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """What a window's evicted blocks went through; times in seconds, quantiles by 0.5, 0.9, 0.99.

    `evictions`: sampled ones. `gaps_per_eviction`: how often a block was used again before it went.
    `late_reuse_share`: of those reuses, how many came after at least half the time that a block
    typically survives untouched. Under LRU a reuse is seen only if it comes in time; where many come
    late, others come too late. Absent without any reuse. `evicted_reuse_share`: how much the evicted
    blocks were in use, as a share of how much all blocks are (hit / written tokens). Near 0 where the
    blocks in use stay, and what is evicted is what nobody came back for; 1 where every block goes.
    """

    evictions: float
    lifetime_seconds: Mapping[float, float]
    idle_seconds: Mapping[float, float]
    reuse_gap_seconds: Mapping[float, float]
    mean_lifetime_seconds: float
    mean_idle_seconds: float
    gaps_per_eviction: float
    late_reuse_share: float | Absent
    evicted_reuse_share: float | Absent


def residency(increases: Mapping[str, float]) -> Residency | Absent:
    """Return the residency of a window's evicted blocks."""
    lifetime, idle = histogram_of(increases, "block_lifetime_seconds"), histogram_of(increases, "block_idle_seconds")
    gap = histogram_of(increases, "block_reuse_gap_seconds")
    if lifetime is None or idle is None or gap is None:
        return Absent("no residency histograms on this page: vLLM writes them with --kv-cache-metrics")
    if not lifetime.count > 0 or not idle.count > 0:
        return Absent("no sampled block was evicted")
    if not lifetime.edges or not idle.edges or not gap.edges:
        return Absent("the residency histograms have no buckets on this page")
    idle_seconds = quantiles(idle)
    late: float | Absent = Absent("no evicted block had been used again more than once")
    if gap.count > 0:
        late = 1.0 - share_below(gap, LATE * idle_seconds[0.5])
    gaps_per_eviction = gap.count / lifetime.count
    reuse = ratio(
        increases.get("hit_tokens", Absent("no hits in tokens on this page")),
        written_tokens(increases),
        when_zero="nothing was written into the pool",
    )
    return Residency(
        evictions=lifetime.count,
        lifetime_seconds=quantiles(lifetime),
        idle_seconds=idle_seconds,
        reuse_gap_seconds=quantiles(gap) if gap.count > 0 else {},
        mean_lifetime_seconds=lifetime.total / lifetime.count,
        mean_idle_seconds=idle.total / idle.count,
        gaps_per_eviction=gaps_per_eviction,
        late_reuse_share=late,
        evicted_reuse_share=ratio(gaps_per_eviction, reuse, when_zero="nothing was found in the cache"),
    )


def quantiles(histogram: Histogram, shares: Sequence[float] = QUANTILES) -> dict[float, float]:
    """Return the quantiles of a histogram that has observations.

    Each is linear within its bucket; the last finite edge where it lies above (as PromQL does).
    """
    edges, counts = (0.0, *histogram.edges), histogram.counts
    seen = list(accumulate(counts))
    found = {}
    for share in shares:
        rank = share * seen[-1]
        place = bisect_left(seen, rank)
        lower = edges[place]
        if place < len(histogram.edges):
            lower += (edges[place + 1] - lower) * (rank - (seen[place] - counts[place])) / counts[place]
        found[share] = lower
    return found


def share_below(histogram: Histogram, value: float) -> float:
    """Return the share of observations up to `value`, linear within its bucket."""
    lower, seen, total = 0.0, 0.0, sum(histogram.counts)
    for edge, count in zip((*histogram.edges, math.inf), histogram.counts, strict=True):
        if value < edge:
            inside = 0.0 if math.isinf(edge) else (value - lower) / (edge - lower)
            return (seen + count * inside) / total
        lower, seen = edge, seen + count
    return 1.0
