"""What one poll interval's increases say of its requests: the pool that the estimates are made from.

Source, best first: the finish group (from 0.13: both histograms), the first-token group (from 0.16:
three counters that move together), else the number of requests alone.
"""

from collections.abc import Mapping

from prefixwatch.figures.pooled import Pool
from prefixwatch.page.reading import CacheConfig, Histogram, histogram_of

_FINISHED, _COMPUTED = "request_prompt_tokens", "request_computed_tokens"
_FIRST_TOKENS = "time_to_first_token_seconds/count"


def pool_of(increases: Mapping[str, float]) -> Pool | None:
    """Return the pool of an interval; None where nothing at all is known of its requests."""
    finished, computed = histogram_of(increases, _FINISHED), histogram_of(increases, _COMPUTED)
    if finished is not None and computed is not None:
        return Pool(
            requests=round(finished.count),
            prompt_tokens=finished.total,
            computed_tokens=computed.total,
            prompt_counts=_counts(finished),
            computed_counts=_counts(computed),
            prompt_edges=finished.edges,
            computed_edges=computed.edges,
            surplus=_surplus(increases),
        )
    first_tokens, prompt = increases.get(_FIRST_TOKENS), increases.get("prompt_tokens")
    cached = increases.get("cached_prompt_tokens")
    if first_tokens is not None and prompt is not None and cached is not None:
        return Pool(requests=round(first_tokens), prompt_tokens=prompt, computed_tokens=prompt - cached)
    count = finished.count if finished is not None else first_tokens
    return None if count is None else Pool(requests=round(count), prompt_tokens=None, computed_tokens=None)


def grain_of(config: CacheConfig, counters: Mapping[str, float]) -> int:
    """Return what every cached amount is for certain a multiple of, in tokens; 1 where that is not certain.

    Certain where vLLM states the alignment (0.32), for a model of one kind of layer, and as long as
    no KV connector, whose blocks may be others, was asked since the engine's start.
    """
    stated = config.cache_hit_alignment_tokens or config.effective_attention_block_size
    if not stated or config.is_hybrid or counters.get("external_queried_tokens", 0.0) > 0:
        return 1
    return stated


def _counts(histogram: Histogram) -> tuple[int, ...] | None:
    """Return counts per bucket; a page without buckets has the count and the sum alone."""
    return tuple(map(round, histogram.counts)) if histogram.edges else None


def _surplus(increases: Mapping[str, float]) -> int:
    """Return how many observations are further samples (n > 1) of a request observed already."""
    samples, requests = increases.get("samples_per_request/sum"), increases.get("samples_per_request/count")
    return 0 if samples is None or requests is None else max(0, round(samples - requests))
