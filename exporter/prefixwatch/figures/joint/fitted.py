"""What is kept of a fit: enough to read one pool fast, and to begin the next fit with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.joint.bounds import FIGURES

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

_STEPS = 8  # of proportional fitting, as when the pools of a fit are read


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The pairings of a fit, and what is known of one request in each.

    `rows`, `columns`: places of each pairing's prompt and computed bucket in a pool's vector; `width`: prompt buckets in
    all. `values`, (k, 12): the pairing's share; mean, variance, least and greatest of the prompt; mean, variance and
    least of the cached tokens; least computed tokens; share of mostly, fully cached and cold requests. `average`: the
    four figures of any request.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    width: int
    values: Array
    average: tuple[float, ...]

    def glance(self, pool: Sequence[float], requests: float) -> list[float]:
        """Return estimated sums of hit ratio, mostly, fully cached and cold requests of one pool, of so many requests.

        From the average of each pairing: cheaper than reading the pool as a fit does, as good on average. Plain numbers,
        since a pool occupies few buckets. Requests in buckets that the fit does not know are taken to be like the others.
        """
        pairs = [pair for pair in self._pairs() if pool[pair[0]] and pool[pair[1]]]
        counts = _proportional(pool, pairs)
        known = sum(counts)
        if known < 0.5:
            return [requests * value for value in self.average]
        # What the pool's sums exceed the means by is shared out in proportion to the variances.
        excess, cached_excess = pool[-2], pool[-2] - pool[-1]
        spread = cached_spread = 1e-12
        for n, (_, _, _, prompt, variance, _, _, cached, cached_variance, *_) in zip(counts, pairs, strict=True):
            excess -= n * prompt
            spread += n * variance
            cached_excess -= n * cached
            cached_spread += n * cached_variance
        excess, cached_excess = excess / spread, cached_excess / cached_spread
        figures = [0.0] * FIGURES
        for n, (_, _, _, prompt, variance, low, high, cached, cached_variance, least, computed, *shares) in zip(
            counts, pairs, strict=True
        ):
            length = min(max(prompt + variance * excess, low), high)
            most = length - min(computed, length)
            figures[0] += n * min(max(cached + cached_variance * cached_excess, least), most) / length
            for k, share in enumerate(shares, start=1):
                figures[k] += n * share
        return [figure * requests / known for figure in figures]

    def _pairs(self) -> Iterator[tuple[Any, ...]]:
        """Return row, column and values of each pairing in one tuple."""
        return zip(self.rows, self.columns, *self.values.T.tolist(), strict=True)

    def spread_over(self, rows: Index, columns: Index) -> Array:
        """Return the shares as a joint distribution of other occupied buckets, (rows, columns)."""
        size = max(*self.rows, *self.columns, *rows, *(self.width + columns)) + 1
        whole = np.zeros((size, size))
        whole[self.rows, self.columns] = self.values[:, 0]
        return whole[np.ix_(rows, self.width + columns)]


def _proportional(pool: Sequence[float], pairs: Sequence[tuple[Any, ...]]) -> list[float]:
    """Return the requests of each pairing, fitted to the margins as `pairing.pair_counts` does."""
    along = {pair[0]: 1.0 for pair in pairs}
    across = {pair[1]: 1.0 for pair in pairs}
    # With one bucket on either side, the first step is the last.
    for _ in range(_STEPS if len(along) > 1 and len(across) > 1 else 1):
        sums = dict.fromkeys(along, 0.0)
        for i, j, share, *_ in pairs:
            sums[i] += share * across[j]
        along = {i: pool[i] / total for i, total in sums.items()}
        sums = dict.fromkeys(across, 0.0)
        for i, j, share, *_ in pairs:
            sums[j] += share * along[i]
        across = {j: pool[j] / total for j, total in sums.items()}
    return [along[i] * share * across[j] for i, j, share, *_ in pairs]
