"""Prefill time saved: what the cached tokens would have cost to compute.

The engine's own intervals say what a computed token costs: their prefill time is fitted as
slope x computed tokens + a constant x requests, all three counted at the finish of the same
requests. Saved is slope x cached tokens, in request-seconds: requests share the engine's steps, so
it is no GPU time.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixwatch.figures.figure import Absent

COLUMNS = ("prefill_seconds/sum", "request_computed_tokens/sum", "request_prompt_tokens/count")
"""The counters that an interval is fitted from: seconds, computed tokens, requests."""

MIN_INTERVALS = 10
MAX_RELATIVE_ERROR = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    """Seconds of prefill that one more computed token costs, with its standard error."""

    seconds: float
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Prefill time saved, in request-seconds, with the standard error that the token's cost gives it."""

    estimate: float
    standard_error: float


def token_cost(intervals: NDArray[np.float64]) -> TokenCost | Absent:
    """Fit what a computed token costs; `intervals`: shape (n, 3), increases of `COLUMNS` in a row.

    Weighted least squares, an interval's variance taken as proportional to its requests. The
    standard error is the jackknife's over blocks of neighbouring intervals (Künsch 1989): it holds
    where neighbours depend on each other, and is large where a few intervals decide everything.
    Sound is: at least 10 intervals with requests, a positive slope, and a standard error of at
    most 30 % of it. Else absent: all requests computed about the same, or the load moved the times.
    """
    rows = intervals[np.isfinite(intervals).all(axis=1) & (intervals[:, 2] > 0)]
    count = len(rows)
    if count < MIN_INTERVALS:
        return Absent(f"prefill times of {count} intervals are too few to fit: {MIN_INTERVALS} are needed")
    weights = 1.0 / rows[:, 2]
    # Per row: tokens^2, tokens x requests, requests^2, tokens x seconds, requests x seconds.
    seconds, tokens, requests = rows.T
    products = np.stack([tokens * tokens, tokens * requests, requests * requests, tokens * seconds, requests * seconds])
    moments = products * weights
    slope = _slopes(moments.sum(axis=1)[None])[0]
    starts = np.arange(0, count, math.ceil(count ** (1 / 3)))
    left_out = _slopes(moments.sum(axis=1)[None] - np.add.reduceat(moments, starts, axis=1).T)
    if not np.isfinite(slope) or not np.isfinite(left_out).all():
        return Absent("all requests computed about equally many tokens: what one of them costs cannot be told")
    blocks = len(starts)
    error = math.sqrt((blocks - 1) / blocks * float(((left_out - left_out.mean()) ** 2).sum()))
    if slope <= 0 or error > MAX_RELATIVE_ERROR * slope:
        return Absent("prefill times do not follow the computed tokens closely enough to say what a token costs")
    return TokenCost(seconds=float(slope), standard_error=error)


def _slopes(moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve rows of moments for the cost of a token; NaN where tokens and requests do not come apart."""
    tokens_2, both, requests_2, tokens_seconds, requests_seconds = moments.T
    determinant = tokens_2 * requests_2 - both * both
    is_told = determinant > 1e-9 * tokens_2 * requests_2
    slopes = (tokens_seconds * requests_2 - requests_seconds * both) / np.where(is_told, determinant, 1.0)
    return np.where(is_told, slopes, np.nan)


def saving(cost: TokenCost | Absent, cached_tokens: float | Absent) -> Saving | Absent:
    """Return the prefill time that `cached_tokens` of finished requests saved."""
    if isinstance(cost, Absent):
        return cost
    if isinstance(cached_tokens, Absent):
        return cached_tokens
    return Saving(estimate=cost.seconds * cached_tokens, standard_error=cost.standard_error * cached_tokens)
