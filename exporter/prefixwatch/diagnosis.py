"""Why the cache misses: a cause, how sure, the evidence, and what to do.

Rules in order of precedence; the first that holds decides:

1. `insufficient_evidence` while the counters stand still: nothing they say is true now.
2. `caching_disabled`: the flag says so, or prompts are served and none is ever looked up.
3. `no_traffic`: nothing was looked up in the window.
4. `short_prompts`: the prompt lengths allow next to nothing.
5. `eviction` under pressure: preemptions, a queue and usage near 1 at once.
6. `decode_bound` or `healthy` where the ratio is near its ceiling.
7. What the cache events show, which is certain: `eviction`, `cache_key_split`, and, where 9 and 10 do
   not hold, `prompt_divergence`. With them 8 has nothing to add.
8. `eviction` where blocks in use are evicted, their reuses crowd the time that an idle block
   survives (residency), and requests that find anything find most of their prompt; or under
   pressure short of 5.
9. `warming_up`: the engine started a moment ago, and the ratio is low.
10. `insufficient_evidence` where the ratio is low over a handful of requests.
11. `prompt_divergence`: the ratio is low although the pool never filled.
12. `decode_bound` or `healthy` where the ratio is not low, and no loss can be or is seen: the pool
    never filled, or residency shows no late reuse, or the events no avoidable miss.
13. `insufficient_evidence`: the ratio is below its ceiling, the pool has filled, and nothing tells
    eviction from diverging prompts. A block that is never used again before its eviction looks the
    same under both.

Low and near are shares of the hit-ratio ceiling, since no cache can do better than that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from prefixwatch.figures.engine import WindowFigures
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.residency import Residency
from prefixwatch.figures.wording import duration, percent


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


class _Case:
    """The figures of one window in the words of the rules."""

    def __init__(
        self, figures: WindowFigures, thresholds: Thresholds, events: EventEvidence | None, age: float | None
    ) -> None:
        self.figures = figures
        self.limits = thresholds
        self.events = events
        self.age = age
        ratio, ceiling = figures.token_hit_ratio, figures.hit_ratio_ceiling
        self.ratio = None if isinstance(ratio, Absent) else ratio
        self.ceiling = ceiling.estimate if isinstance(ceiling, Estimate) else 1.0
        self.of_ceiling = None if self.ratio is None else min(1.0, self.ratio / max(self.ceiling, 1e-9))
        self.residency = figures.residency if isinstance(figures.residency, Residency) else None

    @property
    def is_near_ceiling(self) -> bool:
        return self.of_ceiling is not None and self.of_ceiling >= self.limits.near_ceiling

    @property
    def is_low(self) -> bool:
        return self.of_ceiling is not None and self.of_ceiling < self.limits.low_of_ceiling

    @property
    def is_reused(self) -> bool:
        return self.ratio is not None and self.ratio >= self.limits.reused

    @property
    def has_events(self) -> bool:
        return self.events is not None and self.events.stored >= self.limits.min_evictions

    @property
    def is_found_in_parts(self) -> bool:
        """Say whether even a request that finds something finds little: more memory gives none of them more."""
        ratio, cold = self.figures.request_hit_ratio, self.figures.cold_request_ratio
        if isinstance(ratio, Absent) or isinstance(cold, Absent) or cold.estimate >= 1:
            return False
        return ratio.estimate / (1 - cold.estimate) < self.limits.low_of_ceiling * self.ceiling

    def pressure(self) -> list[str]:
        """Name the signs that running requests crowd the cache out."""
        usage, preemptions = _number(self.figures.kv_usage_max), _number(self.figures.preemptions)
        waiting = _number(self.figures.requests_waiting_max)
        signs = []
        if preemptions > 0:
            signs.append(f"{preemptions:,.0f} preemptions: running requests lost their blocks and started over")
        if usage >= self.limits.near_full:
            signs.append(f"running requests held up to {percent(usage)} of the pool")
        if waiting > 0:
            signs.append(f"up to {waiting:,.0f} requests waited")
        return signs

    def late(self) -> float | None:
        """Return the share of late reuses, where enough evictions say it."""
        if self.residency is None or self.residency.evictions < self.limits.min_evictions:
            return None
        return None if isinstance(self.residency.late_reuse_share, Absent) else self.residency.late_reuse_share


def diagnose(
    figures: WindowFigures,
    *,
    thresholds: Thresholds | None = None,
    events: EventEvidence | None = None,
    age: float | None = None,
) -> Diagnosis:
    """Return the cause that a window's figures point to, by the rules above.

    `events`: what the cache events say of the window, None without them. `age`: seconds since the
    engine started, or its cache was seen to be cleared; None where that is not known.
    """
    case = _Case(figures, thresholds or Thresholds(), events, age)
    for rule in _RULES:
        found = rule(case)
        if found is not None:
            return _with_prefill(found, case)
    raise AssertionError("the last rule always holds")


def _frozen(case: _Case) -> Diagnosis | None:
    reason = case.figures.frozen
    if reason is None:
        return None
    return _of(
        Cause.INSUFFICIENT_EVIDENCE, Confidence.HIGH, [reason],
        ["see whether /metrics is served by the process that serves requests", "restart the engine's metrics, or the engine"],
    )  # fmt: skip


def _disabled(case: _Case) -> Diagnosis | None:
    if case.figures.caching_enabled is not False:
        return None
    evidence = "enable_prefix_caching is False, or prompts are served and none is looked up"
    return _of(
        Cause.CACHING_DISABLED, Confidence.HIGH, [evidence],
        ["start vLLM with --enable-prefix-caching, or leave it off if that was meant"],
    )  # fmt: skip


def _idle(case: _Case) -> Diagnosis | None:
    ratio = case.figures.token_hit_ratio
    if not isinstance(ratio, Absent):
        return None
    if case.figures.is_idle:
        return _of(Cause.NO_TRAFFIC, Confidence.HIGH, ["nothing was looked up in the window"], [])
    return _of(
        Cause.INSUFFICIENT_EVIDENCE, Confidence.LOW, [f"there is no token hit ratio: {ratio.reason}"],
        ["upgrade to a vLLM with the V1 engine's counters (0.9 or later)"],
    )  # fmt: skip


def _short(case: _Case) -> Diagnosis | None:
    ceiling, figures = case.figures.hit_ratio_ceiling, case.figures
    mean, block = figures.prompt_tokens_per_request, figures.block_tokens
    fits = not isinstance(mean, Absent) and not isinstance(block, Absent) and mean <= block
    is_low = isinstance(ceiling, Estimate) and ceiling.estimate < case.limits.short_ceiling
    if not is_low and (not fits or case.is_reused):
        return None
    evidence = []
    if isinstance(ceiling, Estimate):
        evidence.append(f"these prompt lengths allow a hit ratio of {percent(ceiling.estimate)} at most")
    if not isinstance(mean, Absent) and not isinstance(block, Absent):
        evidence.append(
            f"prompts have {mean:,.0f} tokens on average, and only whole blocks of {block:,.0f} can be found"
        )
    return _of(
        Cause.SHORT_PROMPTS, Confidence.HIGH if fits else Confidence.MEDIUM, evidence,
        ["nothing to gain from this cache with these prompts", "a smaller --block-size finds shorter prefixes"],
    )  # fmt: skip


def _under_pressure(case: _Case) -> Diagnosis | None:
    """All three signs at once: memory is short whatever else is."""
    signs = case.pressure()
    if len(signs) < 3 or not case.is_reused:
        return None
    return _eviction(case, Confidence.MEDIUM if case.is_near_ceiling else Confidence.HIGH, signs)


def _near_ceiling(case: _Case) -> Diagnosis | None:
    return _good(case, Confidence.HIGH) if case.is_near_ceiling else None


def _by_events(case: _Case) -> Diagnosis | None:
    events = case.events
    if events is None or not case.has_events:
        return None
    if events.avoidable_miss_ratio >= case.limits.avoidable:
        return _eviction(
            case, Confidence.HIGH,
            [f"{percent(events.avoidable_miss_ratio)} of the stored blocks had been in the pool before and were evicted"],
        )  # fmt: skip
    if events.key_split_ratio >= case.limits.split:
        return _of(
            Cause.CACHE_KEY_SPLIT, Confidence.HIGH,
            [(f"{percent(events.key_split_ratio)} of the stored blocks hold the same tokens at the same place as others,"
             " under another salt or adapter")],
            ["by design, if tenants must not share a cache; else use fewer cache_salt values, or fewer adapters"],
        )  # fmt: skip
    if case.is_low:
        # A cold cache has first-time misses alone, whatever the prompts share.
        return _warming(case) or _too_few(case) or _divergence(
            case, Confidence.HIGH,
            [f"only {percent(events.avoidable_miss_ratio)} of the stored blocks had been in the pool before: misses are first-time"],
        )  # fmt: skip
    return None


def _by_residency(case: _Case) -> Diagnosis | None:
    late, residency = case.late(), case.residency
    if late is None or residency is None or late < case.limits.late_reuses or not case.is_reused or case.has_events:
        return None
    if _number(residency.evicted_reuse_share) < case.limits.evicted_reuses or case.is_found_in_parts:
        return None
    idle, gap = residency.idle_seconds[0.5], residency.reuse_gap_seconds[0.5]
    signs = [
        (
            f"blocks are evicted after {duration(idle)} idle, and come back after {duration(gap)} (medians):"
            f" {percent(late)} of the reuses come in the second half of that time, so many come too late"
        ),
    ]
    is_sure = late >= 1.5 * case.limits.late_reuses and case.figures.pool_filled is True
    return _eviction(case, Confidence.HIGH if is_sure else Confidence.MEDIUM, [*signs, *case.pressure()])


def _by_some_pressure(case: _Case) -> Diagnosis | None:
    """Preemptions or a queue with usage near 1, where residency does not say otherwise."""
    signs = case.pressure()
    is_full = _number(case.figures.kv_usage_max) >= case.limits.near_full
    if not is_full or len(signs) < 2 or not case.is_reused or case.late() is not None or case.has_events:
        return None
    return _eviction(case, Confidence.MEDIUM, signs)


def _warming(case: _Case) -> Diagnosis | None:
    if case.age is None or case.age >= case.limits.warm_up_seconds or not case.is_low:
        return None
    return _of(
        Cause.WARMING_UP, Confidence.MEDIUM, [f"the engine started {duration(case.age)} ago, with an empty cache"],
        ["wait: the first request of each prefix always misses"],
    )  # fmt: skip


def _too_few(case: _Case) -> Diagnosis | None:
    requests = case.figures.requests
    if not case.is_low or isinstance(requests, Absent) or requests >= case.limits.min_requests:
        return None
    return _of(
        Cause.INSUFFICIENT_EVIDENCE, Confidence.LOW,
        [_on_ratio(case), f"only {requests:,.0f} requests finished: the first request of each prefix always misses"],
        ["wait for more requests, or look at a longer window"],
    )  # fmt: skip


def _unfilled(case: _Case) -> Diagnosis | None:
    if not case.is_low or case.figures.pool_filled is not False:
        return None
    # Where something is reused, a cache that still fills looks much the same.
    return _divergence(
        case, Confidence.MEDIUM if case.is_reused else Confidence.HIGH,
        ["the pool never filled since the engine's start, so nothing had to be evicted: misses are first-time"],
    )  # fmt: skip


def _no_loss(case: _Case) -> Diagnosis | None:
    """Call it good where nothing can have been lost to eviction, or residency or events would show it."""
    residency = case.residency
    is_seen = residency is not None and residency.evictions >= case.limits.min_evictions
    if case.is_low or not (case.figures.pool_filled is False or is_seen or case.has_events):
        return None
    return _good(case, Confidence.MEDIUM)


def _unknown(case: _Case) -> Diagnosis:
    filled = case.figures.pool_filled
    why = "how full the pool is cannot be told" if isinstance(filled, Absent) else "the pool has filled since the start"
    evidence = [
        _on_ratio(case),
        f"{why}: blocks may be evicted before they are used again, or prompts may share too little; counters do not tell",
    ]
    steps = []
    if case.residency is None:
        steps.append("start vLLM with --kv-cache-metrics, which shows how long blocks survive and when they come back")
    elif isinstance(case.residency.late_reuse_share, Absent):
        evidence.append(
            f"{case.residency.late_reuse_share.reason}: so it is under eviction and diverging prompts alike"
        )
    steps.append(
        "start vLLM with cache events (--kv-events-config with enable_kv_cache_events), which settle it: a block"
        " stored again after its removal is a miss that more memory would have avoided"
    )
    return _of(Cause.INSUFFICIENT_EVIDENCE, Confidence.LOW, evidence, steps)


_RULES = (
    _frozen, _disabled, _idle, _short, _under_pressure, _near_ceiling, _by_events, _by_residency, _by_some_pressure,
    _warming, _too_few, _unfilled, _no_loss, _unknown,
)  # fmt: skip


def _good(case: _Case, confidence: Confidence) -> Diagnosis:
    output, share = case.figures.output_per_prompt_token, case.figures.prefill_share
    reasons = []
    if not isinstance(output, Absent) and output >= case.limits.output_dwarfs_prompt:
        reasons.append(f"{output:.3g} tokens are generated per prompt token")
    if _is_prefill_small(case):
        reasons.append(f"prefill is {percent(share)} of the requests' time")
    if reasons:
        return _of(
            Cause.DECODE_BOUND, confidence, [_on_ratio(case), *reasons],
            ["look at decoding: batch size, speculative decoding, quantisation; the cache is not what limits latency"],
        )  # fmt: skip
    evidence = [_on_ratio(case)]
    if confidence is not Confidence.HIGH:
        evidence.append("what is missing to the ceiling shows no loss that memory or prompt order would win back")
    return _of(Cause.HEALTHY, confidence, [*evidence, *_on_cold(case)], [])


def _eviction(case: _Case, confidence: Confidence, evidence: list[str]) -> Diagnosis:
    usage = case.figures.kv_usage_max
    turnover = case.figures.turnover_seconds
    more = [_on_ratio(case), *evidence]
    if not isinstance(turnover, Absent):
        more.append(f"the pool is written over every {duration(turnover)}: no untouched block survives longer")
    if not isinstance(usage, Absent) and usage < 0.5:
        more.append(
            f"the usage gauge peaked at {percent(usage)}: it does not count cached blocks that no request holds"
        )
    return _of(
        Cause.EVICTION, confidence, more,
        [
            "more KV memory: raise --gpu-memory-utilization, use --kv-cache-dtype fp8, or add replicas with prefix-aware routing",
            "less demand on it: lower --max-model-len or --max-num-seqs",
            "to know how much: cache events give the ratio at 1.5, 2 and 4 times the pool",
        ],
    )  # fmt: skip


def _divergence(case: _Case, confidence: Confidence, evidence: list[str]) -> Diagnosis:
    return _of(
        Cause.PROMPT_DIVERGENCE, confidence, [_on_ratio(case), *evidence, *_on_cold(case)],
        [
            "put what requests share first and what varies last: dates, ids and user data behind the system prompt",
            "compare two rendered prompts: the chat template or the order of tools may vary at the front",
            "if the requests share nothing, nothing is wrong: there is nothing to reuse",
        ],
    )  # fmt: skip


def _on_ratio(case: _Case) -> str:
    assert case.ratio is not None
    allowed = f", of {percent(case.ceiling)} that these prompt lengths allow" if case.ceiling < 1 else ""
    return f"the token hit ratio is {percent(case.ratio)}{allowed}"


def _on_cold(case: _Case) -> Iterator[str]:
    """Say where the request level tells another story than the token level."""
    cold, mostly = case.figures.cold_request_ratio, case.figures.mostly_cached_request_ratio
    if isinstance(cold, Estimate) and cold.estimate >= 0.25 and not case.is_low:
        yield f"yet {percent(cold.estimate)} of the requests get nothing from the cache: their prompts are the shorter ones"
    if isinstance(mostly, Estimate) and mostly.estimate >= 0.5 and case.is_low:
        yield f"{percent(mostly.estimate)} of the requests get most of their prompt: the cold ones are the longer ones"


def _is_prefill_small(case: _Case) -> bool:
    share = case.figures.prefill_share
    return not isinstance(share, Absent) and share <= case.limits.small_prefill_share


def _with_prefill(found: Diagnosis, case: _Case) -> Diagnosis:
    """Say, whatever the cause, where fixing it would not move latency."""
    if found.cause in (Cause.DECODE_BOUND, Cause.NO_TRAFFIC) or not _is_prefill_small(case):
        return found
    share = percent(case.figures.prefill_share)
    note = f"prefill is only {share} of the requests' time: fixing this will not move latency much"
    return _of(found.cause, found.confidence, [*found.evidence, note], list(found.next_steps))


def _number(value: float | Absent) -> float:
    return 0.0 if isinstance(value, Absent) else value


def _of(cause: Cause, confidence: Confidence, evidence: list[str], next_steps: list[str]) -> Diagnosis:
    return Diagnosis(cause=cause, confidence=confidence, evidence=tuple(evidence), next_steps=tuple(next_steps))


class Hold:
    """Let a cause change only after the new one held for a while, so that alerts do not flap.

    `seconds`: how long. The first diagnosis counts at once.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: Diagnosis | None = None
        self._rival: Cause | None = None
        self._rival_since = 0.0

    def update(self, time: float, found: Diagnosis) -> Diagnosis:
        """Take the diagnosis of this moment (unix seconds); return the one that holds."""
        if self._held is None or found.cause is self._held.cause:
            self._held, self._rival = found, None
        elif found.cause is not self._rival:
            self._rival, self._rival_since = found.cause, time
        if self._rival is not None and time - self._rival_since >= self._seconds:
            self._held, self._rival = found, None
        assert self._held is not None
        return self._held
