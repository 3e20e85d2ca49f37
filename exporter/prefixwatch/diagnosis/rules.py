"""Why the cache misses: a cause, how sure, the evidence, and what to do.

Rules in order of precedence; the first that holds decides:

1. `insufficient_evidence` while the counters stand still: nothing they say is true now.
2. `caching_disabled`: the flag says so, or prompts are served and none is ever looked up.
3. `no_traffic`: nothing was looked up in the window; `insufficient_evidence` where requests are in
   the engine meanwhile and no counter moves, or where there is no ratio for another reason.
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
11. `prompt_divergence`, of medium confidence: the ratio is low although the pool never filled. Keys
    split by a salt or adapter look the same without events.
12. `decode_bound` or `healthy` where the ratio is not low, and no loss can be or is seen: the pool
    never filled, or residency shows no late reuse, or the events no avoidable miss.
13. `insufficient_evidence`: the ratio is below its ceiling, the pool has filled, and nothing tells
    eviction from diverging prompts. A block that is never used again before its eviction looks the
    same under both.

Low and near are shares of the hit-ratio ceiling, since no cache can do better than that.
"""

from prefixwatch.diagnosis.case import Case, number
from prefixwatch.diagnosis.findings import diagnosis_of, divergence, eviction, good, on_ratio, with_prefill
from prefixwatch.diagnosis.terms import Cause, Confidence, Diagnosis, EventEvidence, Thresholds
from prefixwatch.figures.engine import WindowFigures
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.wording import duration, percent

_ON_PAGE = "this page has them whole and with sane values"


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
    case = Case(figures, thresholds or Thresholds(), events, age)
    for rule in _RULES:
        found = rule(case)
        if found is not None:
            return with_prefill(found, case)
    raise AssertionError("the last rule always holds")


def _frozen(case: Case) -> Diagnosis | None:
    reason = case.figures.frozen
    if reason is None:
        return None
    return diagnosis_of(
        Cause.INSUFFICIENT_EVIDENCE, Confidence.LOW, [reason],
        ["see whether /metrics is served by the process that serves requests", "if the engine hangs, restart it"],
    )  # fmt: skip


def _disabled(case: Case) -> Diagnosis | None:
    if case.figures.caching_enabled is not False:
        return None
    return diagnosis_of(
        Cause.CACHING_DISABLED, Confidence.HIGH, [case.figures.caching_evidence],
        ["start vLLM with --enable-prefix-caching, or leave it off if that was meant"],
    )  # fmt: skip


def _idle(case: Case) -> Diagnosis | None:
    ratio = case.figures.token_hit_ratio
    if not isinstance(ratio, Absent):
        return None
    present = number(case.figures.requests_running) + number(case.figures.requests_waiting)
    if case.figures.is_still and present > 0:
        return diagnosis_of(
            Cause.INSUFFICIENT_EVIDENCE, Confidence.LOW,
            [f"{present:,.0f} requests are in the engine, and no counter moved in the window"],
            ["see whether the engine hangs, and whether /metrics is served by the process that serves requests"],
        )  # fmt: skip
    if case.figures.is_idle:
        still_there = [f"{present:,.0f} requests that came before are still served"] if present > 0 else []
        evidence = ["nothing was looked up in the window", *still_there]
        return diagnosis_of(Cause.NO_TRAFFIC, Confidence.HIGH, evidence, [])
    return diagnosis_of(
        Cause.INSUFFICIENT_EVIDENCE, Confidence.LOW, [f"there is no token hit ratio: {ratio.reason}"],
        [f"the lookup counters are vLLM's prefix_cache_queries and prefix_cache_hits, from 0.9 on: see whether {_ON_PAGE}"],
    )  # fmt: skip


def _short(case: Case) -> Diagnosis | None:
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
    return diagnosis_of(
        Cause.SHORT_PROMPTS, Confidence.HIGH if fits else Confidence.MEDIUM, evidence,
        ["nothing to gain from this cache with these prompts", "a smaller --block-size finds shorter prefixes"],
    )  # fmt: skip


def _under_pressure(case: Case) -> Diagnosis | None:
    """All three signs at once: memory is short whatever else is."""
    signs = case.pressure()
    if len(signs) < 3 or not case.is_reused:
        return None
    return eviction(case, Confidence.MEDIUM if case.is_near_ceiling else Confidence.HIGH, signs)


def _near_ceiling(case: Case) -> Diagnosis | None:
    return good(case, Confidence.HIGH) if case.is_near_ceiling else None


def _by_events(case: Case) -> Diagnosis | None:
    events = case.events
    if events is None or not case.has_events:
        return None
    if events.avoidable_miss_ratio >= case.limits.avoidable:
        return eviction(
            case, Confidence.HIGH,
            [f"{percent(events.avoidable_miss_ratio)} of the stored blocks had been in the pool before and were evicted"],
        )  # fmt: skip
    if events.key_split_ratio >= case.limits.split:
        return diagnosis_of(
            Cause.CACHE_KEY_SPLIT, Confidence.HIGH,
            [(f"{percent(events.key_split_ratio)} of the stored blocks hold the same tokens at the same place as others,"
             " under another salt or adapter")],
            ["by design, if tenants must not share a cache; else use fewer cache_salt values, or fewer adapters"],
        )  # fmt: skip
    if case.is_low:
        # A cold cache has first-time misses alone, whatever the prompts share.
        return _warming(case) or _too_few(case) or divergence(
            case, Confidence.HIGH,
            [f"only {percent(events.avoidable_miss_ratio)} of the stored blocks had been in the pool before: misses are first-time"],
        )  # fmt: skip
    return None


def _by_residency(case: Case) -> Diagnosis | None:
    late, residency = case.late(), case.residency
    if late is None or residency is None or late < case.limits.late_reuses or not case.is_reused or case.has_events:
        return None
    if number(residency.evicted_reuse_share) < case.limits.evicted_reuses or case.is_found_in_parts:
        return None
    idle, gap = residency.idle_seconds[0.5], residency.reuse_gap_seconds[0.5]
    signs = [
        (
            f"blocks are evicted after {duration(idle)} idle, and come back after {duration(gap)} (medians):"
            f" {percent(late)} of the reuses come in the second half of that time, so many come too late"
        ),
    ]
    is_sure = late >= 1.5 * case.limits.late_reuses and case.figures.pool_filled is True
    return eviction(case, Confidence.HIGH if is_sure else Confidence.MEDIUM, [*signs, *case.pressure()])


def _by_some_pressure(case: Case) -> Diagnosis | None:
    """Preemptions or a queue with usage near 1, where residency does not say otherwise."""
    signs = case.pressure()
    is_full = number(case.figures.kv_usage_max) >= case.limits.near_full
    if not is_full or len(signs) < 2 or not case.is_reused or case.late() is not None or case.has_events:
        return None
    return eviction(case, Confidence.MEDIUM, signs)


def _warming(case: Case) -> Diagnosis | None:
    if case.age is None or case.age >= case.limits.warm_up_seconds or not case.is_low:
        return None
    return diagnosis_of(
        Cause.WARMING_UP, Confidence.MEDIUM, [f"the engine started {duration(case.age)} ago, with an empty cache"],
        ["wait: the first request of each prefix always misses"],
    )  # fmt: skip


def _too_few(case: Case) -> Diagnosis | None:
    requests = case.figures.requests
    if not case.is_low or isinstance(requests, Absent) or requests >= case.limits.min_requests:
        return None
    return diagnosis_of(
        Cause.INSUFFICIENT_EVIDENCE, Confidence.LOW,
        [on_ratio(case), f"only {requests:,.0f} requests finished: the first request of each prefix always misses"],
        ["wait for more requests, or look at a longer window"],
    )  # fmt: skip


def _unfilled(case: Case) -> Diagnosis | None:
    if not case.is_low or case.figures.pool_filled is not False:
        return None
    # A cache that still fills, and keys split by a salt or adapter, look much the same.
    return divergence(
        case, Confidence.MEDIUM,
        ["the pool never filled since the engine's start, so nothing had to be evicted: misses are first-time"],
    )  # fmt: skip


def _no_loss(case: Case) -> Diagnosis | None:
    """Call it good where nothing can have been lost to eviction, or residency or events would show it."""
    residency = case.residency
    is_seen = residency is not None and residency.evictions >= case.limits.min_evictions
    if case.is_low or not (case.figures.pool_filled is False or is_seen or case.has_events):
        return None
    return good(case, Confidence.MEDIUM)


def _unknown(case: Case) -> Diagnosis:
    filled = case.figures.pool_filled
    why = "how full the pool is cannot be told" if isinstance(filled, Absent) else "the pool has filled since the start"
    evidence = [
        on_ratio(case),
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
    return diagnosis_of(Cause.INSUFFICIENT_EVIDENCE, Confidence.LOW, evidence, steps)


_RULES = (
    _frozen, _disabled, _idle, _short, _under_pressure, _near_ceiling, _by_events, _by_residency, _by_some_pressure,
    _warming, _too_few, _unfilled, _no_loss, _unknown,
)  # fmt: skip
