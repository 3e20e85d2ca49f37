"""The pools of the last while: their bounds and estimates as they were counted, and as they are known now."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.change import Change
from prefixwatch.figures.joint.bounds import FIGURES, SIDES, Cells, Cuts
from prefixwatch.figures.joint.coherence import coherent, tightened
from prefixwatch.figures.joint.fitting import Joint, fit

Array = npt.NDArray[np.float64]

_CUTS = 10
_LEARNING_POOLS = 6  # searched for every bound; after them one bound now and then
_SEARCH_EVERY = 24
_FIT_EVERY = 256  # pools, once there are many; more with more pairings than usual, so that fitting stays cheap
_USUAL_PAIRINGS = 30
_FIT_PAUSE = 8  # pools at least between two fits, once traffic has changed


@dataclasses.dataclass(frozen=True, slots=True)
class Revisions:
    """What a fit adds to the values of the recent pools as they were counted, (ring, 12), a pool at its number in turn.

    The numbers of all pools ever kept run from `begin` to `end`.
    """

    amounts: Array
    begin: int
    end: int

    def between(self, first: int, last: int) -> Array:
        """Return the sum over the pools number first (included) to last (not), (12,)."""
        oldest = max(first, self.begin, self.end - len(self.amounts))
        numbers = np.arange(oldest - self.begin, min(last, self.end) - self.begin)
        return np.asarray(np.add.reduce(self.amounts.take(numbers, axis=0, mode="wrap")))


class Recent:
    """The last pools of one pair of histograms: their values as counted and as known now, the cuts and the fit.

    A fit is made from the pools since traffic last changed. Those before keep what the fits of their time made of them.
    """

    def __init__(self, cells: Cells, block: int | None, grain: int, ring: int, begin: int) -> None:
        self._geometry = cells
        self._block = block
        self._is_full_mostly = block is not None and grain >= block
        self._cuts = Cuts(cells, capacity=_CUTS)
        self._pools = np.zeros((ring, sum(cells.shape) + 2))
        self._fixed = np.zeros(ring, dtype=np.bool_)
        self._counted = np.zeros((ring, 3 * FIGURES))
        self._known = np.zeros((ring, 3 * FIGURES))
        self._begin = self.end = begin
        self._starts = [begin]  # of each kind of traffic whose pools are kept
        self._fit: Joint | None = None
        self._change: Change | None = None
        self._next_fit = self._soonest_fit = begin

    def suits(self, edges: tuple[tuple[float, ...], tuple[float, ...]], vector: Array) -> bool:
        """Whether a pool has these buckets, and its prompts fit below the limit put on the last ones."""
        cells = self._geometry
        if edges != cells.edges:
            return False
        open_ended = vector[cells.shape[0] - 1] or vector[sum(cells.shape) - 1]
        return not open_ended or bool(vector[-2] <= cells.limit)

    def add(self, vector: Array, exact: Array | None) -> Array | None:
        """Keep a pool and return its values, (12,); None: no pairing is possible."""
        if exact is not None:
            bounds = np.concatenate((exact, exact))
        else:
            self._search(vector)
            bounds = self._bounds(vector[None])[0]
            if (bounds[:FIGURES] > bounds[FIGURES:]).any():
                return None
        self._notice(vector)
        place = (self.end - self._begin) % len(self._pools)
        self._pools[place] = vector
        self._fixed[place] = exact is not None
        self.end += 1
        model = self._fit
        if model is None or (self.end >= self._next_fit and not self._is_change_suspected):
            model = self._refit(self._starts[-1], self.end, before=model, thorough=False)
        estimate = exact
        if estimate is None:
            estimate = self._coherent(model.glance(vector)[None], bounds[None], vector[None])[0]
        values: Array = np.concatenate((estimate, bounds))
        self._counted[place] = self._known[place] = values
        return values

    @property
    def revisions(self) -> Revisions:
        """What the present fit adds to what was counted, pool by pool."""
        return Revisions(self._known - self._counted, self._begin, self.end)

    def settle(self, searches: int) -> None:
        """Search the widest bounds of the recent pools anew, then fit."""
        filled = min(self.end - self._begin, len(self._pools))
        open_ones = np.flatnonzero(~self._fixed[:filled])
        width = self._known[open_ones, 2 * FIGURES :] - self._known[open_ones, FIGURES : 2 * FIGURES]
        order = np.argsort(-width, axis=0)
        for k in range(min(searches // SIDES, len(open_ones))):
            for side in range(SIDES):
                self._cuts.learn(self._pools[open_ones[order[k, side % FIGURES]]], side)
        for first, last in pairwise([*self._starts, self.end]):
            self._refit(first, last, before=None, thorough=True)

    def _search(self, vector: Array) -> None:
        """Search new cuts: every side for the first pools, then one side in turn once in a while."""
        number = self.end - self._begin
        if number < _LEARNING_POOLS:
            for side in range(SIDES):
                self._cuts.learn(vector, side)
        elif number % _SEARCH_EVERY == 0:
            self._cuts.learn(vector, number // _SEARCH_EVERY % SIDES)

    def _notice(self, vector: Array) -> None:
        """Forget the fit, and fit to what came since, once traffic has changed."""
        change = self._change
        if change is None or not change.add(vector, self.end) or self.end + 1 < self._soonest_fit:
            return
        oldest = self.end - len(self._pools)
        kept = [first for first, last in pairwise([*self._starts, change.since]) if last > oldest]
        self._starts = [*kept, change.since]
        self._fit = self._change = None

    @property
    def _is_change_suspected(self) -> bool:
        """Whether to wait with the next fit: old and new traffic should not get into one."""
        return self._change is not None and self._change.is_suspected

    def _refit(self, first: int, last: int, *, before: Joint | None, thorough: bool) -> Joint:
        """Fit to the kept ones of the pools number first (included) to last (not), and read them again."""
        places = (np.arange(max(first, self.end - len(self._pools)), last) - self._begin) % len(self._pools)
        pools = self._pools[places]
        prompt, computed = self._geometry.buckets
        model = fit(pools, prompt, computed, block=self._block, before=before, thorough=thorough)
        again = ~self._fixed[places]
        if again.any():
            bounds = self._bounds(pools[again])
            estimates = self._coherent(model.read(pools[again]), bounds, pools[again])
            self._known[places[again]] = np.concatenate((estimates, bounds), axis=1)
        pause = min(last - first, _FIT_EVERY * max(1, len(model.share) // _USUAL_PAIRINGS))
        if first > self._begin:
            pause = max(pause, _FIT_PAUSE)
        self._next_fit, self._soonest_fit = self.end + pause, self.end + _FIT_PAUSE
        self._change = Change(pools, len(prompt.low), end=self.end)
        self._fit = model
        return model

    def _bounds(self, pools: Array) -> Array:
        """Return the bounds of pools (n, width), each tightened by the others: (n, SIDES)."""
        rows = zip(self._cuts.bounds(pools).tolist(), self._requests(pools), strict=True)
        found = (tightened(row[:FIGURES], row[FIGURES:], n, is_full_mostly=self._is_full_mostly) for row, n in rows)
        return np.array([lower + upper for lower, upper in found])

    def _coherent(self, estimates: Array, bounds: Array, pools: Array) -> Array:
        """Return estimates, (n, 4), moved into their bounds and together."""
        rows = zip(estimates.tolist(), bounds.tolist(), self._requests(pools), strict=True)
        return np.array(
            [coherent(e, b[:FIGURES], b[FIGURES:], n, is_full_mostly=self._is_full_mostly) for e, b, n in rows]
        )

    def _requests(self, pools: Array) -> list[float]:
        return [float(n) for n in pools[:, : self._geometry.shape[0]].sum(axis=1)]
