"""What is said of a cause: evidence with its figures, and next steps in the operator's words."""

from collections.abc import Iterator

from prefixwatch.diagnosis.case import Case, is_prefill_small, number
from prefixwatch.diagnosis.terms import Cause, Confidence, Diagnosis
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.wording import duration, percent

_OR_SPLIT = (
    "if requests carry a cache_salt or a LoRA adapter each, that is the reason: counters cannot tell it from diverging"
    " prompts, cache events can"
)


def good(case: Case, confidence: Confidence) -> Diagnosis:
    """Call the cache healthy, or decoding what limits latency."""
    output, share = case.figures.output_per_prompt_token, case.figures.prefill_share
    reasons = []
    if not isinstance(output, Absent) and output >= case.limits.output_dwarfs_prompt:
        reasons.append(f"{output:.3g} tokens are generated per prompt token")
    if is_prefill_small(case):
        reasons.append(f"prefill is {percent(share)} of the requests' time")
    if reasons:
        return diagnosis_of(
            Cause.DECODE_BOUND, confidence, [on_ratio(case), *reasons],
            ["look at decoding: batch size, speculative decoding, quantisation; the cache is not what limits latency"],
        )  # fmt: skip
    evidence = [on_ratio(case)]
    if confidence is not Confidence.HIGH:
        evidence.append("what is missing to the ceiling shows no loss that memory or prompt order would win back")
    return diagnosis_of(Cause.HEALTHY, confidence, [*evidence, *on_cold(case)], [])


def eviction(case: Case, confidence: Confidence, evidence: list[str]) -> Diagnosis:
    """Call it eviction, by this evidence."""
    usage = case.figures.kv_usage_max
    turnover = case.figures.turnover_seconds
    more = [on_ratio(case), *evidence]
    if not isinstance(turnover, Absent):
        more.append(f"the pool is written over every {duration(turnover)}: no untouched block survives longer")
    if not isinstance(usage, Absent) and usage < 0.5:
        more.append(
            f"the usage gauge peaked at {percent(usage)}: it does not count cached blocks that no request holds"
        )
    return diagnosis_of(
        Cause.EVICTION, confidence, more,
        [
            "more KV memory: raise --gpu-memory-utilization, use --kv-cache-dtype fp8, or add replicas with prefix-aware routing",
            "less demand on it: lower --max-model-len or --max-num-seqs",
            "how much is enough: see what 1.5, 2 and 4 times the pool would still miss" if case.has_events
            else "to know how much: cache events give the ratio at 1.5, 2 and 4 times the pool",
        ],
    )  # fmt: skip


def divergence(case: Case, confidence: Confidence, evidence: list[str]) -> Diagnosis:
    """Call it diverging prompts, by this evidence."""
    return diagnosis_of(
        Cause.PROMPT_DIVERGENCE, confidence, [on_ratio(case), *evidence, *on_cold(case)],
        [
            "put what requests share first and what varies last: dates, ids and user data behind the system prompt",
            "compare two rendered prompts: the chat template or the order of tools may vary at the front",
            *([] if case.has_events else [_OR_SPLIT]),
            "if the requests share nothing, nothing is wrong: there is nothing to reuse",
        ],
    )  # fmt: skip


def on_ratio(case: Case) -> str:
    """Say the ratio, and what it could be."""
    assert case.ratio is not None
    allowed = f", of {percent(case.ceiling)} that these prompt lengths allow" if case.ceiling < 1 else ""
    return f"the token hit ratio is {percent(case.ratio)}{allowed}"


def on_cold(case: Case) -> Iterator[str]:
    """Say where the request level tells another story than the token level."""
    cold, mostly = case.figures.cold_request_ratio, case.figures.mostly_cached_request_ratio
    if isinstance(cold, Estimate) and cold.estimate >= 0.25 and not case.is_low:
        yield f"yet {percent(cold.estimate)} of the requests get nothing from the cache: their prompts are the shorter ones"
    if isinstance(mostly, Estimate) and mostly.estimate >= 0.5 and case.is_low:
        yield f"{percent(mostly.estimate)} of the requests get most of their prompt: the cold ones are the longer ones"


def with_prefill(found: Diagnosis, case: Case) -> Diagnosis:
    """Say, whatever the cause, where fixing it would not move latency."""
    # A queue and preemptions cost time that the share of prefill does not show.
    is_crowded = number(case.figures.preemptions) > 0 or number(case.figures.requests_waiting_max) > 0
    if found.cause in (Cause.DECODE_BOUND, Cause.NO_TRAFFIC) or not is_prefill_small(case) or is_crowded:
        return found
    share = percent(case.figures.prefill_share)
    note = f"prefill is only {share} of the requests' time: fixing this will not move latency much"
    return diagnosis_of(found.cause, found.confidence, [*found.evidence, note], list(found.next_steps))


def diagnosis_of(cause: Cause, confidence: Confidence, evidence: list[str], next_steps: list[str]) -> Diagnosis:
    """Return a diagnosis."""
    return Diagnosis(cause=cause, confidence=confidence, evidence=tuple(evidence), next_steps=tuple(next_steps))
