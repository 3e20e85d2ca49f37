"""The words of a diagnosis: causes, how sure one is, and where the lines are drawn."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class Cause(StrEnum):
    """Why the cache does what it does."""

    NO_TRAFFIC = "no_traffic"
    CACHING_DISABLED = "caching_disabled"
    WARMING_UP = "warming_up"
    SHORT_PROMPTS = "short_prompts"
    EVICTION = "eviction"
    CACHE_KEY_SPLIT = "cache_key_split"
    PROMPT_DIVERGENCE = "prompt_divergence"
    DECODE_BOUND = "decode_bound"
    HEALTHY = "healthy"
    INSUFFICIENT_EVIDENCE = "insufficient_evidence"


class Confidence(StrEnum):
    """How sure a diagnosis is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


CONFIDENCE = {Confidence.LOW: 0.2, Confidence.MEDIUM: 0.5, Confidence.HIGH: 1.0}
"""Confidence as a number, for a gauge: to compare with, not to compute with."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the rules draw their lines. Ratios and shares in 0..1, seconds.

    `near_ceiling`: a ratio from this share of its ceiling on has lost nothing worth a look: block
    edges and first requests alone cost that much. `low_of_ceiling`: below this share most of a
    working cache's gain is missing. `short_ceiling`: a ceiling below this leaves nothing to cache.
    `near_full`: usage from here on means that running requests hold the pool. `late_reuses`: this
    share of reuses in the later half of a block's idle life says that many come too late; chance
    visits within a life that short make 0.5, conversations that ended next to nothing.
    `evicted_reuses`: below this share of all use, evicted blocks were not the ones in use.
    `min_evictions`: fewer sampled evictions say nothing. `min_requests`: a low ratio over fewer says
    nothing, since the first request of each prefix misses. `reused`: below this hit ratio nothing is
    reused, so no loss can be put down to eviction. `warm_up_seconds`: a cache that young is cold.
    `output_dwarfs_prompt`, `small_prefill_share`: from here on decoding is where the time goes.
    `avoidable`: this share of avoidable misses (events) is eviction; `split`: of key splits.
    """

    near_ceiling: float = 0.9
    low_of_ceiling: float = 0.6
    short_ceiling: float = 0.25
    near_full: float = 0.95
    late_reuses: float = 0.2
    evicted_reuses: float = 0.15
    min_evictions: int = 20
    min_requests: int = 20
    reused: float = 0.05
    warm_up_seconds: float = 30.0
    output_dwarfs_prompt: float = 2.0
    small_prefill_share: float = 0.05
    avoidable: float = 0.2
    split: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A cause with its evidence: sentences with the figures that decided, and what to do next."""

    cause: Cause
    confidence: Confidence
    evidence: tuple[str, ...]
    next_steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEvidence:
    """What the engine's cache events say of a window; shares of the stored blocks, 0..1.

    `stored`: how many blocks they are about.
    """

    stored: float
    avoidable_miss_ratio: float
    key_split_ratio: float
