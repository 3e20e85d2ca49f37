"""Request level over windows: pools in, the contract's figures out.

Joins `intervals` (what an interval says), `requests` (the estimates) and `history` (the windows).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from prefixwatch.figures.ceiling import Bounded, cacheable_tokens
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.intervals import grain_of, pool_of
from prefixwatch.figures.recent import Revisions
from prefixwatch.figures.requests import RING, Increment, RequestEstimator
from prefixwatch.figures.requestsums import RequestFigures, request_figures, window_sums
from prefixwatch.figures.windows import Window
from prefixwatch.page.reading import CacheConfig, Reading, histogram_of, parts_of

LOST = "own/lost_requests"
THOROUGH_RING = 2048
"""So many pools a report fits at once: half an hour of polls a second."""

BOUNDS = ("estimate", "lower", "upper")
_BOUNDED = {
    field: tuple(f"own/{name}/{bound}" for bound in BOUNDS)
    for field, name in {
        "hit_ratio": "request_hit_ratio_sum",
        "mostly_cached": "mostly_cached_requests",
        "fully_cached": "full_requests",
        "cold": "cold_requests",
        "cacheable_tokens": "cacheable_tokens",
    }.items()
}
_NO_HISTOGRAM = Absent("no histogram of prompt lengths on this page")
_NO_BLOCK = Absent("the page does not state a block size")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLevel:
    """The request-level figures of one window, each an estimate with bounds, or absent with the reason."""

    hit_ratio: Estimate | Absent
    mostly_cached: Estimate | Absent
    full: Estimate | Absent
    cold: Estimate | Absent
    gap: float | Absent

    @classmethod
    def absent(cls, why: Absent) -> "RequestLevel":
        """Return all of them absent."""
        return cls(hit_ratio=why, mostly_cached=why, full=why, cold=why, gap=why)


class RequestWatch:
    """The request level of one engine, poll by poll.

    `is_thorough`: for a report on everything seen, which may take a moment, instead of a sidecar.
    """

    def __init__(self, *, is_thorough: bool = False) -> None:
        self._estimator: RequestEstimator | None = None
        self._setting: tuple[int | None, int] | None = None
        self._is_thorough = is_thorough
        self._is_settled = False

    def observe(self, grown: Mapping[str, float], reading: Reading) -> tuple[dict[str, float], NDArray[np.float64]]:
        """Take one interval; return what it adds to the exporter's own counters, and the ledger."""
        setting = (reading.config.effective_block, grain_of(reading.config, reading.counters))
        if self._estimator is None or setting != self._setting:
            # A restarted engine may have another block size; what was summed up stays.
            ring = THOROUGH_RING if self._is_thorough else RING
            self._estimator = RequestEstimator(
                block_tokens=setting[0], grain=setting[1], ring=ring, earlier=self._estimator
            )
            self._setting = setting
        self._is_settled = False
        pool = pool_of(grown)
        added = {} if pool is None else _amounts(self._estimator.observe(pool))
        return added, self._estimator.totals

    def level(self, window: Window) -> RequestLevel:
        """Return the figures of a window."""
        return self.level_later()(window)

    def level_later(self) -> Callable[[Window], RequestLevel]:
        """Return what gives the figures of a window, as known now, at any later time, in any thread."""
        if self._estimator is None:
            return _unobserved
        if self._is_thorough and not self._is_settled:
            self._estimator.settle()
            self._is_settled = True
        return partial(_level_of, revisions=self._estimator.revisions, is_block_known=self._estimator.is_block_known)


def level_since_start(reading: Reading) -> RequestLevel:
    """Return the figures of all requests since the engine's start, pooled in one: wide bounds."""
    pool = pool_of(reading.counters)
    if pool is None:
        return RequestLevel.absent(Absent("no count of requests on this page"))
    grain = grain_of(reading.config, reading.counters)
    estimator = RequestEstimator(block_tokens=reading.config.effective_block, grain=grain)
    estimator.observe(pool)
    estimator.settle()
    return _level(estimator.figures())


def hit_ratio_ceiling(increases: Mapping[str, float], config: CacheConfig) -> Estimate | Absent:
    """Return the most that a window's prompt lengths allow: cacheable / prompt tokens."""
    block, observed = config.effective_block, increases.get("own/cacheable_prompt_tokens")
    if block is not None and observed:
        sums = (increases.get(f"own/cacheable_tokens/{bound}", 0.0) for bound in BOUNDS)
        estimate, lower, upper = (value / observed for value in sums)
        return Estimate(estimate=estimate, lower=lower, upper=upper)
    prompts = histogram_of(increases, "request_prompt_tokens")
    if prompts is None or not prompts.edges:
        return _NO_HISTOGRAM
    if block is None:
        return _NO_BLOCK
    if not prompts.total > 0:
        return Absent("no request finished")
    share = cacheable_tokens(prompts.counts, prompts.edges, prompts.total, block_tokens=block)
    if share is None:
        return Absent("the prompt histogram contradicts itself")
    share = share / prompts.total
    return Estimate(estimate=share.estimate, lower=share.lower, upper=share.upper)


def lost_requests(rate: float, gap: float) -> float:
    """Return how many requests may have finished unread before a restart, `gap` seconds after the last reading.

    As many as finish at that `rate` (a second), and three standard deviations more.
    """
    expected = rate * max(0.0, gap)
    return math.ceil(expected + 3 * math.sqrt(expected))


def finishing_rate(recent: Window | None, last: Reading) -> float:
    """Return how many requests finished a second up to the `last` reading: in the `recent` window, or since its process began.

    The higher of the two: lately nothing may have run for a while, and earlier the process may have been idle.
    """
    lately = recent.increases.get("own/requests", 0.0) / recent.seconds if recent and recent.seconds > 0 else 0.0
    age = last.time - min(last.created.values(), default=last.time)
    finished = sum(parts_of(last.counters, "requests_finished").values())
    return max(lately, finished / age if age > 0 else 0.0)


def _unobserved(_: Window) -> RequestLevel:
    return RequestLevel.absent(Absent("no request was observed yet"))


def _level_of(window: Window, *, revisions: Revisions | None, is_block_known: bool) -> RequestLevel:
    if window.ledger is None:
        return _unobserved(window)
    start, end = window.ledger
    figures = request_figures(window_sums(start, end, revisions), is_block_known=is_block_known)
    return _widened(_level(figures), figures.requests, window.increases.get(LOST, 0.0))


def _widened(level: RequestLevel, requests: int, lost: float) -> RequestLevel:
    """Widen the bounds by requests that were never read: each may have had everything or nothing cached."""
    if lost <= 0 or requests <= 0:
        return level

    def wider(figure: Estimate | Absent) -> Estimate | Absent:
        if isinstance(figure, Absent):
            return figure
        return Estimate(
            estimate=figure.estimate,
            lower=figure.lower * requests / (requests + lost),
            upper=(figure.upper * requests + lost) / (requests + lost),
            method="pooled" if figure.method == "exact" else figure.method,
        )

    return RequestLevel(
        hit_ratio=wider(level.hit_ratio),
        mostly_cached=wider(level.mostly_cached),
        full=wider(level.full),
        cold=wider(level.cold),
        gap=level.gap,
    )


def _amounts(increment: Increment) -> dict[str, float]:
    amounts = {
        "own/requests": float(increment.requests),
        "own/prompt_tokens": increment.prompt_tokens,
        "own/cached_tokens": increment.cached_tokens,
    }
    if increment.cacheable_tokens is not None:
        amounts["own/cacheable_prompt_tokens"] = increment.prompt_tokens
    for field, (estimate, lower, upper) in _BOUNDED.items():
        value: Bounded | None = getattr(increment, field)
        if value is not None:
            amounts[estimate], amounts[lower], amounts[upper] = value.estimate, value.lower, value.upper
    return amounts


def _level(figures: RequestFigures) -> RequestLevel:
    def taken(name: str, figure: Estimate | None) -> Estimate | Absent:
        return Absent(figures.reasons[name]) if figure is None else figure

    gap = taken("gap", figures.gap)
    return RequestLevel(
        hit_ratio=taken("hit_ratio", figures.hit_ratio),
        mostly_cached=taken("mostly_cached", figures.mostly_cached),
        full=taken("fully_cached", figures.fully_cached),
        cold=taken("cold", figures.cold),
        gap=gap if isinstance(gap, Absent) else gap.estimate,
    )
