"""Request-level figures of a window, from the running sums at its ends."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.figure import Estimate
from prefixwatch.figures.joint.bounds import FIGURES
from prefixwatch.figures.pooled import Pool
from prefixwatch.figures.recent import Revisions

Array = npt.NDArray[np.float64]


class Method(enum.StrEnum):
    """How a figure was got."""

    EXACT = "exact"  # every pool left one possibility
    POOLED = "pooled"  # fitted to the pools
    BOUNDS_ONLY = "bounds_only"  # no histogram: the estimate is no better than a guess within the bounds


class Total(enum.IntEnum):
    """Places in the vector of running sums; the last three are the first of FIGURES values each."""

    POOLS = 0  # in the ring, at any time
    REQUESTS = 1
    EXACT_REQUESTS = 2
    BUCKETED_REQUESTS = 3
    FAULTY_REQUESTS = 4
    UNAVAILABLE_REQUESTS = 5
    PROMPT_TOKENS = 6  # of the pools without fault
    COMPUTED_TOKENS = 7
    SURPLUS = 8  # of the requests
    ESTIMATE = 9
    LOWER = ESTIMATE + FIGURES
    UPPER = LOWER + FIGURES


WIDTH = Total.UPPER + FIGURES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestFigures:
    """Figures of one window: shares of requests, and a difference of ratios.

    None: absent, and `reasons` has its name (a field of this class) and why.
    """

    requests: int
    token_ratio: float | None
    hit_ratio: Estimate | None
    mostly_cached: Estimate | None
    fully_cached: Estimate | None
    cold: Estimate | None
    gap: Estimate | None
    reasons: dict[str, str]


def window_sums(start: Array, end: Array, revisions: Revisions | None) -> Array:
    """Return the sums between two values of `totals`, (WIDTH,), which `request_figures` reads; no start: from the begin.

    Recent pools count with the fit that `revisions` come from, older ones with the fit known when they were observed.
    """
    window = end - start if len(start) else end.copy()
    if revisions is not None:
        first = int(start[Total.POOLS]) if len(start) else 0
        window[Total.ESTIMATE :] += revisions.between(first, int(end[Total.POOLS]))
    return window


def request_figures(window: Array, *, is_block_known: bool) -> RequestFigures:
    """Return the figures of a window from its sums, (WIDTH,)."""
    sums: list[float] = window.tolist()  # of so few numbers, floats are many times as fast as arrays
    requests = sums[Total.REQUESTS] - sums[Total.SURPLUS]
    if requests < 0.5:
        unavailable = sums[Total.UNAVAILABLE_REQUESTS] > 0
        reason = Pool(requests=1, prompt_tokens=None, computed_tokens=None).unavailable if unavailable else None
        return _absent(reason or "no request finished")
    method = _method(sums)
    ratio, mostly, full, cold = (
        Estimate(estimate=e, lower=low, upper=high, method=method) for e, low, high in _shares(sums, requests)
    )
    prompt = sums[Total.PROMPT_TOKENS]
    token = 1 - sums[Total.COMPUTED_TOKENS] / prompt if prompt > 0 else None
    reasons: dict[str, str] = {}
    if token is None:
        reasons |= dict.fromkeys(("token_ratio", "gap"), "no interval stated consistent token sums")
    if not is_block_known:
        reasons["fully_cached"] = "the engine does not state its block size"
    return RequestFigures(
        requests=round(requests),
        token_ratio=token,
        hit_ratio=ratio,
        mostly_cached=mostly,
        fully_cached=full if is_block_known else None,
        cold=cold,
        gap=None if token is None else _gap(token, ratio),
        reasons=reasons,
    )


def _absent(reason: str) -> RequestFigures:
    names: Iterable[str] = ("token_ratio", "hit_ratio", "mostly_cached", "fully_cached", "cold", "gap")
    return RequestFigures(
        requests=0,
        token_ratio=None,
        hit_ratio=None,
        mostly_cached=None,
        fully_cached=None,
        cold=None,
        gap=None,
        reasons=dict.fromkeys(names, reason),
    )


def _method(sums: Sequence[float]) -> Method:
    if sums[Total.EXACT_REQUESTS] == sums[Total.REQUESTS] and not sums[Total.SURPLUS]:
        return Method.EXACT
    if sums[Total.BUCKETED_REQUESTS] > 0:
        return Method.POOLED
    return Method.BOUNDS_ONLY


def _shares(sums: Sequence[float], requests: float) -> Iterator[tuple[float, float, float]]:
    """Yield estimate, lower and upper bound of each figure as shares of the requests of their own.

    Any observation may be the one too many. Clipping undoes the rounding of long running sums.
    """
    observed, surplus = sums[Total.REQUESTS], sums[Total.SURPLUS]
    estimates, lowers, uppers = (sums[first : first + FIGURES] for first in (Total.ESTIMATE, Total.LOWER, Total.UPPER))
    for estimate, lower, upper in zip(estimates, lowers, uppers, strict=True):
        low = _clipped((lower - surplus) / requests, 0.0, 1.0)
        high = _clipped(upper / requests, low, 1.0)
        yield _clipped(estimate / observed, low, high), low, high


def _clipped(value: float, low: float, high: float) -> float:
    return low if value < low else min(value, high)


def _gap(token: float, ratio: Estimate) -> Estimate:
    return Estimate(
        estimate=token - ratio.estimate,
        lower=token - ratio.upper,
        upper=token - ratio.lower,
        method=ratio.method,
    )
