"""Ratios of token counters over a window.

All functions take a window's increases and return a value in its unit, or `Absent` with the
reason. Definitions: README, "Reading the figures".
"""

from collections.abc import Mapping

from prefixwatch.figures.figure import Absent, ratio
from prefixwatch.page.reading import parts_of

LOOKUP_UNITS = ("tokens", "blocks", "units")
CACHED_SOURCES = frozenset(("local_cache", "external"))

# Lookups are counted at admission, prompt tokens at first token. Queries that outgrow prompt
# tokens by more than this, requests in flight allowed for, were counted more than once.
RETRY_MARGIN = 1.1

Increases = Mapping[str, float]


def token_hit_ratio(increases: Increases, *, running: float = 0.0, may_retry: bool = True) -> float | Absent:
    """Return hit / queried tokens of the engine's counter pair; blocks do as well, both halves alike.

    Where lookups were retried, the first-token group gives the ratio if the release has it.
    `running`: the most requests that ran at once, which may be looked up and not yet counted at
    first token. `may_retry` False: this release counts each lookup once.
    """
    queried, hit = lookups(increases)
    if isinstance(queried, Absent) or isinstance(hit, Absent):
        return queried if isinstance(queried, Absent) else hit
    if may_retry and are_lookups_retried(increases, running=running):
        of_first_tokens = _local_ratio_at_first_token(increases)
        if not isinstance(of_first_tokens, Absent):
            return of_first_tokens
    if hit > queried:
        return Absent("more hits than queries: the counters were torn or reset between two reads")
    return ratio(hit, queried, when_zero="nothing was looked up")


def lookups(increases: Increases) -> tuple[float | Absent, float | Absent]:
    """Return (queried, hit) in one unit, whichever the page has."""
    for unit in LOOKUP_UNITS:
        queried, hit = increases.get(f"queried_{unit}"), increases.get(f"hit_{unit}")
        if queried is not None or hit is not None:
            return (
                Absent("no usable queries counter on this page") if queried is None else queried,
                Absent("no usable hits counter on this page") if hit is None else hit,
            )
    absent = Absent("no usable lookup counters on this page")
    return absent, absent


def are_lookups_retried(increases: Increases, *, running: float) -> bool:
    """Say whether queries outgrew prompt tokens: lookups of waiting requests were counted again."""
    queried, prompt = increases.get("queried_tokens"), increases.get("prompt_tokens")
    first_tokens = increases.get("time_to_first_token_seconds/count")
    if queried is None or not prompt or not first_tokens:
        return False
    in_flight = running * prompt / first_tokens
    return queried > RETRY_MARGIN * prompt + in_flight


def external_hit_ratio(increases: Increases) -> float | Absent:
    """Return hit / queried tokens of the KV connector."""
    queried, hit = increases.get("external_queried_tokens"), increases.get("external_hit_tokens")
    if queried is None or hit is None:
        return Absent("no KV connector on this page")
    if hit > queried:
        return Absent("more hits than queries: the counters were torn or reset between two reads")
    return ratio(hit, queried, when_zero="nothing was looked up in a KV connector")


def prompt_tokens_by_source(increases: Increases) -> dict[str, float] | Absent:
    """Return prompt tokens by where they came from: computed, local_cache, external, or the engine's own word."""
    return parts_of(increases, "prompt_tokens_by_source") or Absent(
        "no prompt tokens by source on this page (from vLLM 0.16)"
    )


def cached_prompt_ratio(increases: Increases) -> float | Absent:
    """Return cached prompt tokens (local and external) / prompt tokens.

    The counters by source divide among themselves: a rounded total elsewhere on the page does not
    enter. Then come the two counters at first token (0.16), then the two sums at finish (0.13).
    """
    cached, prompt = cached_and_prompt_tokens(increases)
    if isinstance(cached, Absent):
        return cached
    if cached > prompt:
        return Absent("more cached than prompt tokens: the counters were torn or reset between two reads")
    return ratio(cached, prompt, when_zero="no prompt tokens")


def cached_and_prompt_tokens(increases: Increases) -> tuple[float | Absent, float]:
    """Return (cached, prompt) tokens of the best group of counters that the page has."""
    sources = prompt_tokens_by_source(increases)
    if not isinstance(sources, Absent) and not sources.keys() <= CACHED_SOURCES:
        return sources.get("local_cache", 0.0) + sources.get("external", 0.0), sum(sources.values())
    cached, prompt = increases.get("cached_prompt_tokens"), increases.get("prompt_tokens")
    if cached is not None and prompt is not None:
        return cached, prompt
    finished, computed = increases.get("request_prompt_tokens/sum"), increases.get("request_computed_tokens/sum")
    if finished is not None and computed is not None:
        return max(0.0, finished - computed), finished
    return Absent("no cached prompt tokens on this page (from vLLM 0.13)"), 0.0


def prompt_tokens(increases: Increases) -> float | Absent:
    """Return prompt tokens, counted at first token."""
    total = increases.get("prompt_tokens")
    if total is not None:
        return total
    sources = prompt_tokens_by_source(increases)
    return Absent("no prompt tokens counter on this page") if isinstance(sources, Absent) else sum(sources.values())


def output_per_prompt_token(increases: Increases) -> float | Absent:
    """Return generated / prompt tokens."""
    generated = increases.get("generation_tokens")
    if generated is None:
        return Absent("no generation tokens counter on this page")
    return ratio(generated, prompt_tokens(increases), when_zero="no prompt tokens")


def prompt_tokens_per_request(increases: Increases) -> float | Absent:
    """Return the mean prompt of finished requests, else of those that got their first token; in tokens."""
    for total, count in (
        ("request_prompt_tokens/sum", "request_prompt_tokens/count"),
        ("prompt_tokens", "time_to_first_token_seconds/count"),
    ):
        tokens, requests = increases.get(total), increases.get(count)
        if tokens is not None and requests is not None:
            return ratio(tokens, requests, when_zero="no request")
    return Absent("no count of requests on this page")


def prefill_share(increases: Increases) -> float | Absent:
    """Return the share of finished requests' inference time that was prefill."""
    prefill, inference = increases.get("prefill_seconds/sum"), increases.get("inference_seconds/sum")
    if prefill is None or inference is None:
        return Absent("no prefill and inference times on this page")
    share = ratio(prefill, inference, when_zero="no request finished")
    return share if isinstance(share, Absent) else min(1.0, share)


def requests_finished(increases: Increases) -> float | Absent:
    """Return how many requests finished, for whatever reason."""
    counts = parts_of(increases, "requests_finished")
    if counts:
        return sum(counts.values())
    count = increases.get("request_prompt_tokens/count")
    return Absent("no count of finished requests on this page") if count is None else count


def _local_ratio_at_first_token(increases: Increases) -> float | Absent:
    sources = prompt_tokens_by_source(increases)
    if isinstance(sources, Absent):
        return sources
    if sources.keys() <= CACHED_SOURCES:
        return Absent("no computed prompt tokens on this page")
    return ratio(sources.get("local_cache", 0.0), sum(sources.values()), when_zero="no prompt tokens")
