"""The pools of the last while: their bounds and estimates as they were counted, and as they are known now."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.joint.bounds import FIGURES, SIDES, Cells, Cuts
from prefixwatch.figures.joint.fitting import Joint, fit

Array = npt.NDArray[np.float64]

_CUTS = 10
_LEARNING_POOLS = 6  # searched for every bound; after them one bound now and then
_SEARCH_EVERY = 24
_FIT_EVERY = 256  # pools, once there are many; more with more pairings than usual, so that fitting stays cheap
_USUAL_PAIRINGS = 30


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
        places = np.arange(oldest, min(last, self.end)) - self.begin
        places %= len(self.amounts)
        return np.asarray(self.amounts[places].sum(axis=0))


class Recent:
    """The last pools of one pair of histograms: their values as counted and as known now, the cuts and the fit."""

    def __init__(self, cells: Cells, block: int | None, ring: int, begin: int) -> None:
        self._geometry = cells
        self._block = block
        self._cuts = Cuts(cells, capacity=_CUTS)
        self._pools = np.zeros((ring, sum(cells.shape) + 2))
        self._requests = np.zeros(ring)
        self._fixed = np.zeros(ring, dtype=np.bool_)
        self._counted = np.zeros((ring, 3 * FIGURES))
        self._known = np.zeros((ring, 3 * FIGURES))
        self._begin = begin
        self.end = begin
        self._fit: Joint | None = None
        self._next_fit = begin + 1

    def suits(self, edges: tuple[tuple[float, ...], tuple[float, ...]], vector: Array) -> bool:
        """Whether a pool has these buckets, and its prompts fit below the limit put on the last ones."""
        cells = self._geometry
        if edges != cells.edges:
            return False
        open_ended = vector[cells.shape[0] - 1] or vector[sum(cells.shape) - 1]
        return not open_ended or bool(vector[-2] <= cells.limit)

    def add(self, vector: Array, exact: Array | None) -> Array | None:
        """Keep a pool and return its values, (12,); None: no pairing is possible."""
        observed = vector[: self._geometry.shape[0]].sum()
        if exact is None:
            self._search(vector)
            bounds = _whole(self._cuts.bounds(vector[None]), np.array((observed,)))
            if (bounds[0, :FIGURES] > bounds[0, FIGURES:]).any():
                return None
        else:
            bounds = np.tile(exact, 2)[None]
        place = (self.end - self._begin) % len(self._pools)
        self._pools[place] = vector
        self._requests[place] = observed
        self._fixed[place] = exact is not None
        self.end += 1
        model = self._fit
        if model is None or self.end >= self._next_fit:
            model = self._refit(before=model, thorough=False)
        estimate = model.glance(vector)[None] if exact is None else bounds[:, :FIGURES]
        values = _values(estimate, bounds)[0]
        self._counted[place] = self._known[place] = values
        return np.asarray(values)

    @property
    def revisions(self) -> Revisions:
        """What the present fit adds to what was counted, pool by pool."""
        return Revisions(self._known - self._counted, self._begin, self.end)

    def settle(self, searches: int) -> None:
        """Search the widest bounds of the recent pools anew, then fit."""
        filled = self._filled()
        open_ones = np.flatnonzero(~self._fixed[:filled])
        width = self._known[open_ones, 2 * FIGURES :] - self._known[open_ones, FIGURES : 2 * FIGURES]
        order = np.argsort(-width, axis=0)
        for k in range(min(searches // SIDES, len(open_ones))):
            for side in range(SIDES):
                self._cuts.learn(self._pools[open_ones[order[k, side % FIGURES]]], side)
        self._refit(before=None, thorough=True)

    def _filled(self) -> int:
        return min(self.end - self._begin, len(self._pools))

    def _search(self, vector: Array) -> None:
        """Search new cuts: every side for the first pools, then one side in turn once in a while."""
        number = self.end - self._begin
        if number < _LEARNING_POOLS:
            for side in range(SIDES):
                self._cuts.learn(vector, side)
        elif number % _SEARCH_EVERY == 0:
            self._cuts.learn(vector, number // _SEARCH_EVERY % SIDES)

    def _refit(self, *, before: Joint | None, thorough: bool) -> Joint:
        """Fit to all kept pools and read them again."""
        filled = self._filled()
        pools = self._pools[:filled]
        prompt, computed = self._geometry.buckets
        model = fit(pools, prompt, computed, block=self._block, before=before, thorough=thorough)
        again = np.flatnonzero(~self._fixed[:filled])
        if len(again):
            bounds = _whole(self._cuts.bounds(pools[again]), self._requests[again])
            estimates = model.read(pools[again])
            values = _values(estimates, bounds)
            self._known[again] = values
        seen = self.end - self._begin
        self._next_fit = self.end + min(seen, _FIT_EVERY * max(1, len(model.share) // _USUAL_PAIRINGS))
        self._fit = model
        return model


def _whole(bounds: Array, requests: Array) -> Array:
    """Keep bounds of shape (n, SIDES) within 0 and the requests, and round those of counts to whole requests."""
    lower, upper = bounds[:, :FIGURES].copy(), bounds[:, FIGURES:].copy()
    lower[:, 1:] = np.ceil(lower[:, 1:] - 1e-6)
    upper[:, 1:] = np.floor(upper[:, 1:] + 1e-6)
    return np.concatenate((np.maximum(lower, 0.0), np.minimum(upper, requests[:, None])), axis=1)


def _values(estimates: Array, bounds: Array) -> Array:
    """Return estimates, lower and upper bounds, (n, 12), with the estimates moved into the bounds."""
    lower, upper = bounds[:, :FIGURES], bounds[:, FIGURES:]
    estimates = np.where(np.isfinite(estimates), estimates, 0.0)
    return np.concatenate((np.clip(estimates, lower, upper), lower, upper), axis=1)
