"""Whether pools are still like those that a fit was made from: a cumulative sum of their misfit (Page, 1954)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_FEWEST = 8  # pools that show what is usual
_ALLOWANCE = 0.5  # standard deviations above the usual that count for nothing
_MOST = 4.0  # that one pool counts: a single odd pool is no change
_ALARM = 10.0
_SUDDEN = 4  # pools in which a sudden change shows
_LEAST_SPREAD = 0.01  # of the cached share of tokens


class Change:
    """Watches pools after a fit.

    `pools` (n, width) are those of the fit: counts of both histograms, prompt tokens, computed tokens; `rows`: how many
    counts are of the prompt histogram. `end`: the number of the next pool.

    A pool's misfit is the deviance of its counts, twice the log likelihood ratio of its own shares against the usual
    ones, and the squared standard score of its cached share of tokens.
    """

    def __init__(self, pools: Array, rows: int, *, end: int) -> None:
        self._rows = rows
        counts, cached = pools[:, :-2], _cached_share(pools)
        total = counts.sum(axis=0)
        self._log_shares = self._log_shares_of(total)
        self._cached, self._spread = float(cached.mean()), max(float(cached.std()), _LEAST_SPREAD)
        self._misfit, self._deviation = 0.0, np.inf  # which no pool exceeds
        if len(pools) >= _FEWEST:
            # Each against the others: against all with itself among them, it would fit better than a new one can.
            others = (cached.sum() - cached) / (len(pools) - 1)
            misfits = _deviance(counts, self._log_shares_of(total - counts)) + ((cached - others) / self._spread) ** 2
            self._misfit = float(misfits.mean())
            # A few may happen to be alike; what is chi-squared varies at least like this.
            self._deviation = max(float(misfits.std()), math.sqrt(2 * self._misfit), 1.0)
        self._sum = 0.0
        self.since = self._last = end

    def add(self, pool: Sequence[float], number: int) -> bool:
        """Take pool `number`; return whether traffic has changed, which it then did with pool `since`."""
        self._last = number
        if self._sum <= 0:
            self._sum, self.since = 0.0, number
        score = (1 - pool[-1] / max(pool[-2], 1.0) - self._cached) / self._spread
        misfit = self._deviance_of(pool[:-2]) + score**2
        self._sum += min((misfit - self._misfit) / self._deviation, _MOST) - _ALLOWANCE
        return self._sum > _ALARM

    def _deviance_of(self, counts: Sequence[float]) -> float:
        """Return what `_deviance` does of one pool, in plain numbers: few of its counts are not 0."""
        own: float = sum(
            n * (math.log(n) - share) for n, share in zip(counts, self._log_shares.tolist(), strict=True) if n
        )
        requests = sum(counts) / 2
        return 2 * (own - 2 * requests * math.log(max(requests, 1.0)))

    @property
    def is_suspected(self) -> bool:
        """Whether the last pools were odd: more than one of them, and too few to be sure."""
        return self._sum > _MOST and self._last - self.since < _SUDDEN

    def _log_shares_of(self, counts: Array) -> Array:
        """Return the logarithm of each bucket's share in its histogram; half a request more, so that none is 0."""
        smoothed = counts + 0.5
        prompt, computed = smoothed[..., : self._rows], smoothed[..., self._rows :]
        shares = (prompt / prompt.sum(axis=-1, keepdims=True), computed / computed.sum(axis=-1, keepdims=True))
        return np.asarray(np.log(np.concatenate(shares, axis=-1)))


def _deviance(counts: Array, log_shares: Array) -> Array:
    requests = counts.sum(axis=-1) / 2
    own = (counts * (np.log(np.maximum(counts, 1.0)) - log_shares)).sum(axis=-1)
    return np.asarray(2 * (own - 2 * requests * np.log(np.maximum(requests, 1.0))))


def _cached_share(pools: Array) -> Array:
    return np.asarray(1 - pools[..., -1] / np.maximum(pools[..., -2], 1.0))
