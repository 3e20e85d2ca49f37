"""The most that the prompt lengths allow: how many prompt tokens a prefix cache could have served at all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import lru_cache

from prefixwatch.figures.pooled import sum_fits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A quantity that the counters do not state: the truth lies within [lower, upper], and so does the estimate."""

    estimate: float
    lower: float
    upper: float

    def __truediv__(self, whole: float) -> Bounded:
        """Return the share of a positive whole."""
        return Bounded(estimate=self.estimate / whole, lower=self.lower / whole, upper=self.upper / whole)


def cacheable_tokens(
    counts: Sequence[float], edges: Sequence[float], prompt_tokens: float, *, block_tokens: int
) -> Bounded | None:
    """Return how many of the prompt tokens could have come from a cache that never forgets.

    Matching stops at whole blocks and leaves the last token, so a prompt of p tokens can hit floor((p - 1) / B) x B of
    them: above B it loses 1 to B tokens, at most B it loses all. `counts` are requests per bucket, not cumulative, one
    more than the finite upper `edges`. Divide by the prompt tokens for the hit-ratio ceiling. None: no request, or
    counts that cannot belong to this sum.
    """
    requests = sum(counts)
    if len(counts) != len(edges) + 1 or list(edges) != sorted(edges) or min(counts) < 0 or not requests > 0:
        return None
    if not math.isfinite(prompt_tokens) or not sum_fits(counts, edges, prompt_tokens):
        return None
    if requests == 1:
        whole = max(math.ceil(prompt_tokens) - 1, 0) // block_tokens * block_tokens
        return Bounded(estimate=float(whole), lower=float(whole), upper=float(whole))
    least = most = likely = 0.0
    any_above = False
    for count, low, high in zip(counts, (0.0, *edges), (*edges, math.inf), strict=True):
        if count:
            any_above = any_above or high > block_tokens
            low_loss, high_loss, mean_loss = _loss(math.floor(low) + 1, high, block_tokens)
            least += count * low_loss
            most += count * high_loss
            likely += count * mean_loss
    if not any_above:
        return Bounded(estimate=0.0, lower=0.0, upper=0.0)
    upper = max(prompt_tokens - least, 0.0)
    lower = min(max(prompt_tokens - most, 0.0), upper)
    return Bounded(estimate=min(max(prompt_tokens - likely, lower), upper), lower=lower, upper=upper)


@lru_cache(maxsize=1024)
def _loss(low: int, high: float, block: int) -> tuple[float, float, float]:
    """Return the least, greatest and likely number of tokens that a prompt of low..high tokens cannot hit."""
    if low > block:
        return 1.0, float(block), (block + 1) / 2
    if high <= block:
        return float(low), float(math.floor(high)), (low + high) / 2
    # Lengths spread evenly over a bucket's logarithm, up to a fourfold span: the last bucket has no end.
    span = min(high, 4.0 * block)
    short = math.log(block / low) / math.log(span / low) if span > low else 0.0
    return 1.0, float(block), short * (low + block) / 2 + (1 - short) * (block + 1) / 2
