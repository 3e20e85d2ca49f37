"""Request-level figures from pooled counts: what the token ratio hides.

vLLM states what each request got from the cache only in sums and histograms. A poll interval pools the requests that
finished in it. One request is stated exactly. For more, `joint.bounds` bounds each figure by every pairing of prompts
and computed tokens that the two histograms and sums allow, and `joint.fitting` estimates it from the joint
distribution that explains the recent pools since traffic last changed (`change`). `joint.coherence` keeps the figures
of a pool from contradicting each other. All add up over pools, so a window is the difference of two running sums.

What an observation is:

- Finished requests only. A client's abort is not observed in the finish group; one that the engine itself ends is, with
  what it had cached when it was admitted (nothing if it never was: it counts as cold).
- A preempted request counts with what its first admission found; recomputed tokens are not computed tokens here.
- A request with n > 1 samples is n observations; `Pool.surplus` takes them out again, and widens the bounds by as
  many.
- A torn or contradictory pool says nothing but its number of requests: bounds 0 and all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.ceiling import Bounded, cacheable_tokens
from prefixwatch.figures.joint.bounds import FIGURES, Cells
from prefixwatch.figures.pooled import Pool
from prefixwatch.figures.recent import Recent, Revisions
from prefixwatch.figures.requestsums import WIDTH, RequestFigures, Total, request_figures, window_sums

Array = npt.NDArray[np.float64]

RING = 96  # recent pools that the fit sees and that a better fit still revises
_SMALLEST_LIMIT = 2.0**17


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Increment:
    """What one pool adds to the exporter's own counters: once, with the fit known by then, and never revised.

    None: this pool cannot say (`fully_cached` and `cacheable_tokens` need the block size, the latter a prompt
    histogram). Every number is at least 0.
    """

    requests: int
    prompt_tokens: float
    cached_tokens: float
    hit_ratio: Bounded
    mostly_cached: Bounded
    fully_cached: Bounded | None
    cold: Bounded
    cacheable_tokens: Bounded | None
    fault: str | None


class RequestEstimator:
    """Request-level figures of one engine. Memory is bounded by the number of buckets, not by traffic.

    `block_tokens` is the effective block, None where it is not known: then nothing is said about fully cached
    requests. `grain`: every cached amount is for certain a multiple of it or at least at it; 1 where that is not known
    (external caches, hybrid models). `ring`: how many recent pools are kept to fit and to revise. `earlier`: the
    estimator before this one, of the same engine with another block or grain; its sums go on.
    """

    def __init__(
        self,
        *,
        block_tokens: int | None,
        grain: int = 1,
        ring: int = RING,
        earlier: RequestEstimator | None = None,
    ) -> None:
        self._block = block_tokens
        self._grain = max(grain, 1)
        self._ring = ring
        self._totals = np.zeros(WIDTH) if earlier is None else earlier.totals
        self._owed: list[float] = [0.0] * (1 + FIGURES) if earlier is None else earlier._owed
        self._recent: Recent | None = None

    @property
    def totals(self) -> Array:
        """Running sums, shape (WIDTH,): keep a copy a point in time, and give two of them to `figures`."""
        return self._totals.copy()

    def observe(self, pool: Pool) -> Increment:
        """Add one poll interval; never raises on what an engine may say."""
        cacheable = self._cacheable(pool)
        if pool.requests <= 0 or pool.unavailable:
            self._totals[Total.UNAVAILABLE_REQUESTS] += max(pool.requests, 0)
            return self._increment(pool, 0, [0.0] * (3 * FIGURES), cacheable, pool.unavailable)
        requests, surplus = pool.requests, max(pool.surplus, 0)
        fault = pool.fault
        values = None if fault else self._read(pool)
        if values is None:
            fault = fault or "no pairing of its buckets gives its sums"
            values = [*self._average(requests), *[0.0] * FIGURES, *[float(requests)] * FIGURES]
            self._totals[Total.FAULTY_REQUESTS] += requests
        else:
            self._totals[Total.PROMPT_TOKENS] += pool.prompt_tokens
            self._totals[Total.COMPUTED_TOKENS] += pool.computed_tokens
            if pool.prompt_counts and pool.computed_counts:
                self._totals[Total.BUCKETED_REQUESTS] += requests
            if values[FIGURES : 2 * FIGURES] == values[2 * FIGURES :]:
                self._totals[Total.EXACT_REQUESTS] += requests
        self._totals[Total.REQUESTS] += requests
        self._totals[Total.SURPLUS] += surplus
        self._totals[Total.ESTIMATE :] += values
        own, values = self._without_surplus(requests, surplus, values)
        return self._increment(pool, own, values, cacheable, fault)

    def settle(self, *, searches: int = 256) -> None:
        """Fit anew to the recent pools and tighten their bounds: before a report on everything seen."""
        if self._recent is not None:
            self._recent.settle(searches)

    def figures(self, start: Array | None = None, end: Array | None = None) -> RequestFigures:
        """Return the figures between two values of `totals`; None: from the beginning, until now."""
        first = np.zeros(0) if start is None else start
        window = window_sums(first, self._totals if end is None else end, self.revisions)
        return request_figures(window, is_block_known=self.is_block_known)

    @property
    def is_block_known(self) -> bool:
        """Whether the effective block is known, which fully cached requests are told by."""
        return self._block is not None

    @property
    def revisions(self) -> Revisions | None:
        """What the present fit makes of the recent pools beyond what was counted; None before the first."""
        return None if self._recent is None else self._recent.revisions

    def _read(self, pool: Pool) -> list[float] | None:
        """Return estimates, lower and upper bounds of the pool's sums, 12; None: it contradicts itself."""
        vector = pool.vector()
        recent = self._recent
        if recent is None or not recent.suits(pool.edges, vector):
            limit = max(_SMALLEST_LIMIT, 2.0 ** math.ceil(math.log2(max(vector[-2], 1.0))))
            cells = _cells(*pool.edges, limit, self._block, self._grain)
            recent = Recent(cells, self._block, self._grain, self._ring, int(self._totals[Total.POOLS]))
        values = recent.add(vector, self._exact(pool))
        if values is not None:
            self._recent = recent
            self._totals[Total.POOLS] = recent.end
        return values

    def _exact(self, pool: Pool) -> list[float] | None:
        """Return the four sums where one possibility is left: one request, or nothing cached at all."""
        prompt, computed = pool.prompt_tokens, pool.computed_tokens
        if prompt is None or computed is None:
            return None
        cached = prompt - computed
        if cached == 0:
            return [0.0, 0.0, 0.0, float(pool.requests)]
        if pool.requests != 1:
            return None
        fully = self._block is not None and computed <= self._block
        return [cached / prompt, float(2 * cached >= prompt), float(fully), 0.0]

    def _without_surplus(self, requests: int, surplus: int, values: list[float]) -> tuple[int, list[float]]:
        """Return requests and values, 12, as counters may add them: never negative, right in the long run.

        A surplus is known only once the last sample has ended, its observations may be in earlier intervals: what
        this interval cannot give back, later ones do. An upper bound gives nothing back, since nothing tells which of
        the observations was the one too many.
        """
        if not surplus and not any(self._owed):
            return requests, values
        owed = [amount + surplus for amount in self._owed]
        whole = [float(requests), *values[FIGURES : 2 * FIGURES]]
        self._owed = [max(amount - most, 0.0) for amount, most in zip(owed, whole, strict=True)]
        own, *lower = (max(most - amount, 0.0) for amount, most in zip(owed, whole, strict=True))
        upper = values[2 * FIGURES :]
        scaled = (value * own / requests for value in values[:FIGURES])
        estimate = [min(max(e, low), high) for e, low, high in zip(scaled, lower, upper, strict=True)]
        return round(own), [*estimate, *lower, *upper]

    def _average(self, requests: int) -> list[float]:
        """Return the figures of as many of the requests seen so far, for a pool that says nothing."""
        seen = float(self._totals[Total.REQUESTS])
        if not seen:
            return [0.5 * requests] * FIGURES
        sums = self._totals[Total.ESTIMATE : Total.LOWER].tolist()
        return [min(requests * (value / seen), float(requests)) for value in sums]

    def _cacheable(self, pool: Pool) -> Bounded | None:
        if self._block is None or pool.prompt_counts is None or pool.prompt_tokens is None or pool.torn:
            return None
        if sum(pool.prompt_counts) != pool.requests:
            return None
        return cacheable_tokens(pool.prompt_counts, pool.prompt_edges, pool.prompt_tokens, block_tokens=self._block)

    def _increment(
        self, pool: Pool, requests: int, values: list[float], cacheable: Bounded | None, fault: str | None
    ) -> Increment:
        prompt = _tokens(pool.prompt_tokens)
        cached = 0.0 if pool.computed_tokens is None else max(prompt - _tokens(pool.computed_tokens), 0.0)
        ratio, mostly, fully, cold = (
            Bounded(estimate=values[k], lower=values[FIGURES + k], upper=values[2 * FIGURES + k])
            for k in range(FIGURES)
        )
        return Increment(
            requests=requests,
            prompt_tokens=prompt if requests else 0.0,
            cached_tokens=cached if requests else 0.0,
            hit_ratio=ratio,
            mostly_cached=mostly,
            fully_cached=fully if self._block is not None else None,
            cold=cold,
            cacheable_tokens=cacheable,
            fault=fault,
        )


@functools.lru_cache(maxsize=8)
def _cells(
    prompt_edges: tuple[float, ...], computed_edges: tuple[float, ...], limit: float, block: int | None, grain: int
) -> Cells:
    """Return the geometry of two histograms; engines with the same buckets share it."""
    return Cells(prompt_edges, computed_edges, limit=limit, block=block, grain=grain)


def _tokens(value: float | None) -> float:
    """Return what a counter may add: torn sums may be anything, but a counter never falls."""
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0
