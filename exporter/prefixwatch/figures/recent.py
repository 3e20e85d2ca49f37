"""The pools of the last while: their bounds and estimates as they were counted, and as they are known now."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.change import Change
from prefixwatch.figures.joint.bounds import FIGURES, LEAST_GAIN, SIDES, Cells, Cuts
from prefixwatch.figures.joint.coherence import coherent, tightened
from prefixwatch.figures.joint.fitted import Fitted
from prefixwatch.figures.joint.fitting import fit
from prefixwatch.figures.pools import Pools

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

_CUTS = 10
_LEARNING_POOLS = 6  # searched for a bound; after them each bound now and then
_SEARCH_EVERY = 24
_FEW = 16  # pools that are fitted anew after as many again; more, after twice as many
_FIT_EVERY = 256  # pools, once there are many; more with more pairings than usual, so that fitting stays cheap
_USUAL_PAIRINGS = 30
_FIT_PAUSE = 8  # pools at least between two fits, once traffic has changed


@dataclasses.dataclass(frozen=True, slots=True)
class Revisions:
    """What the last fit adds to the values of pools as they were counted, (n, 12): of those number `begin` to `end`."""

    amounts: Array
    begin: int
    end: int

    def between(self, first: int, last: int) -> Array:
        """Return the sum over the pools number first (included) to last (not), (12,)."""
        rows = self.amounts[max(0, first - self.begin) : max(0, last - self.begin)]
        return np.asarray(np.add.reduce(rows))


class Recent:
    """The last pools of one pair of histograms: their values as counted and as known now, the cuts and the fit.

    A fit is made from the pools since traffic last changed. Those before keep what the fits of their time made of them.
    """

    def __init__(self, cells: Cells, block: int | None, grain: int, ring: int, begin: int) -> None:
        self._geometry = cells
        self._block = block
        self._is_full_mostly = block is not None and grain >= block
        self._cuts = Cuts(cells, capacity=_CUTS)
        self._searches = [0] * SIDES
        self._pools = Pools(ring, sum(cells.shape) + 2, 3 * FIGURES, begin)
        self._begin = begin
        self._starts = [begin]  # of each kind of traffic whose pools are kept
        self._fit: Fitted | None = None
        self._change: Change | None = None
        self._next_fit = self._soonest_fit = begin
        self.revisions = Revisions(np.zeros((0, 3 * FIGURES)), begin, begin)

    @property
    def end(self) -> int:
        """The number of the next pool."""
        return self._pools.end

    def suits(self, edges: tuple[tuple[float, ...], tuple[float, ...]], vector: Array) -> bool:
        """Whether a pool has these buckets, and its prompts fit below the limit put on the last ones."""
        cells = self._geometry
        if edges != cells.edges:
            return False
        open_ended = vector[cells.shape[0] - 1] or vector[sum(cells.shape) - 1]
        return not open_ended or bool(vector[-2] <= cells.limit)

    def add(self, vector: Array, exact: list[float] | None) -> list[float] | None:
        """Keep a pool and return its values, 12; None: no pairing is possible."""
        pool = vector.tolist()
        requests = sum(pool[: self._geometry.shape[0]])
        if exact is not None:
            bounds = exact + exact
        else:
            bounds = self._search(vector, requests)
            if any(bounds[k] > bounds[FIGURES + k] for k in range(FIGURES)):
                return None
        self._notice(pool)
        number = self._pools.add(vector, is_exact=exact is not None)
        if self._is_fit_due(is_exact=exact is not None):
            numbers, read = self._refit(self._starts[-1], self.end, before=self._fit, thorough=False)
            # The pool itself counts with what `glance` makes of it, as those after it do.
            self._revise(numbers[numbers < number], read[numbers < number])
        values = (exact or self._glance(pool, bounds, requests)) + bounds
        self._pools.count(number, values)
        return values

    def settle(self, searches: int) -> None:
        """Search the widest bounds of the recent pools anew, then fit."""
        numbers = np.arange(self._pools.oldest, self.end)
        open_ones = numbers[~self._pools.are_exact(numbers)]
        known = self._pools.counted(open_ones) + self._revised(open_ones)
        order = np.argsort(known[:, FIGURES : 2 * FIGURES] - known[:, 2 * FIGURES :], axis=0)
        for k in range(min(searches // SIDES, len(open_ones))):
            for side in range(SIDES):
                self._cuts.learn(self._pools.vectors(open_ones[order[k, side % FIGURES], None])[0], side)
        for first, last in pairwise([*self._starts, self.end]):
            if last > self._pools.oldest:
                self._fit = None
                self._revise(*self._refit(first, last, before=None, thorough=True))

    def _search(self, pool: Array, requests: float) -> list[float]:
        """Return the bounds of a pool, after a search for better ones.

        Of every side for the first pools whose bounds leave something to find, then of one side in turn once in a while.
        """
        bounds = self._bounds_of(pool, requests)
        turn, rest = divmod(self.end - self._begin, _SEARCH_EVERY)
        searched = [
            side
            for side in range(SIDES)
            if (self._searches[side] < _LEARNING_POOLS or (rest == 0 and turn % SIDES == side))
            and bounds[FIGURES + side % FIGURES] - bounds[side % FIGURES] > LEAST_GAIN
        ]
        for side in searched:
            self._searches[side] += 1
            self._cuts.learn(pool, side)
        return self._bounds_of(pool, requests) if searched else bounds

    def _notice(self, pool: Sequence[float]) -> None:
        """Forget the fit, and fit to what came since, once traffic has changed."""
        change = self._change
        if change is None or not change.add(pool, self.end) or self.end + 1 < self._soonest_fit:
            return
        kept = [first for first, last in pairwise([*self._starts, change.since]) if last > self._pools.oldest]
        self._starts = [*kept, change.since]
        self._fit = self._change = None

    def _is_fit_due(self, *, is_exact: bool) -> bool:
        """Whether to fit; not as long as a change is suspected, since old and new traffic should not get into one."""
        if self._change is None or (self._fit is None and not is_exact):
            return True
        return self.end >= self._next_fit and not self._change.is_suspected

    def _refit(self, first: int, last: int, *, before: Fitted | None, thorough: bool) -> tuple[Index, Array]:
        """Fit to the kept ones of the pools number first (included) to last (not).

        Returns the numbers of those that are not exact, (n,), and what the fit says of them, (n, 4). Pools that are all
        exact need none.
        """
        numbers = np.arange(max(first, self._pools.oldest), last)
        pools, is_open = self._pools.vectors(numbers), ~self._pools.are_exact(numbers)
        prompt, computed = self._geometry.buckets
        read = np.zeros((len(numbers), FIGURES))
        pairings = 0
        if is_open.any():
            self._fit, read = fit(pools, prompt, computed, block=self._block, before=before, thorough=thorough)
            pairings = len(self._fit.rows)
        growth = 1 if last - first < _FEW else 2
        pause = min(growth * (last - first), _FIT_EVERY * max(1, pairings // _USUAL_PAIRINGS))
        if first > self._begin:
            pause = max(pause, _FIT_PAUSE)
        self._next_fit, self._soonest_fit = self.end + pause, self.end + _FIT_PAUSE
        self._change = Change(pools, len(prompt.low), end=self.end)
        return numbers[is_open], read[is_open]

    def _revise(self, numbers: Index, estimates: Array) -> None:
        """Note what is known now of pools, (n,), whose estimates are (n, 4)."""
        if not len(numbers):
            return
        kept = np.arange(self._pools.oldest, self.end)
        amounts = self._revised(kept)
        pools = self._pools.vectors(numbers)
        requests = pools[:, : self._geometry.shape[0]].sum(axis=1).tolist()
        for number, n, estimate, found, counted in zip(
            numbers.tolist(),
            requests,
            estimates.tolist(),
            self._cuts.bounds(pools).tolist(),
            self._pools.counted(numbers),
            strict=True,
        ):
            lower, upper = tightened(found[:FIGURES], found[FIGURES:], n, is_full_mostly=self._is_full_mostly)
            known = coherent(estimate, lower, upper, n, is_full_mostly=self._is_full_mostly) + lower + upper
            amounts[number - kept[0]] = known - counted
        self.revisions = Revisions(amounts, int(kept[0]), self.end)

    def _revised(self, numbers: Index) -> Array:
        """Return the present revisions of pools, (n, 12); 0 of those that have none."""
        revisions = self.revisions
        found = np.zeros((len(numbers), 3 * FIGURES))
        has = (numbers >= revisions.begin) & (numbers < revisions.end)
        found[has] = revisions.amounts[numbers[has] - revisions.begin]
        return found

    def _bounds_of(self, pool: Array, requests: float) -> list[float]:
        """Return the bounds of a pool, tightened by each other."""
        found = self._cuts.bounds_of(pool, requests)
        lower, upper = tightened(found[:FIGURES], found[FIGURES:], requests, is_full_mostly=self._is_full_mostly)
        return lower + upper

    def _glance(self, pool: Sequence[float], bounds: Sequence[float], requests: float) -> list[float]:
        """Return the estimates of a pool by the present fit, moved into its bounds and together."""
        assert self._fit is not None, "a pool that is not exact makes a fit due"
        estimate, lower, upper = self._fit.glance(pool, requests), bounds[:FIGURES], bounds[FIGURES:]
        return coherent(estimate, lower, upper, requests, is_full_mostly=self._is_full_mostly)
