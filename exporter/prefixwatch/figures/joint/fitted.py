"""What is kept of a fit: enough to read one pool fast, and to begin the next fit with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

_STEPS = 8  # of proportional fitting, as when the pools of a fit are read


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The pairings of a fit.

    `rows`, `columns`: places of each pairing's prompt and computed bucket in a pool's vector; `width`: prompt buckets in
    all. `values`, (k, 12): what `_Pairing` has from its third on. `average`: the figures of any request, (4,).
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
        listed = zip(self.rows, self.columns, self.values.tolist(), strict=True)
        pairs = [(i, j, values) for i, j, values in listed if pool[i] and pool[j]]
        counts = _proportional(pool, [(i, j, values[0]) for i, j, values in pairs])
        known = sum(counts)
        if known < 0.5:
            return [requests * value for value in self.average]
        more_prompt, more_cached = pool[-2], pool[-2] - pool[-1]
        prompt_spread = cached_spread = 1e-12
        for n, (_, _, (_, prompt, prompt_variance, _, _, cached, cached_variance, *_)) in zip(
            counts, pairs, strict=True
        ):
            more_prompt -= n * prompt
            more_cached -= n * cached
            prompt_spread += n * prompt_variance
            cached_spread += n * cached_variance
        more_prompt /= prompt_spread
        more_cached /= cached_spread
        figures = [0.0, 0.0, 0.0, 0.0]
        for n, (_, _, values) in zip(counts, pairs, strict=True):
            _, prompt, prompt_variance, low, high, cached, cached_variance, least, computed, mostly, full, cold = values
            prompt = min(max(prompt + prompt_variance * more_prompt, low), high)
            cached = min(max(cached + cached_variance * more_cached, least), prompt - min(computed, prompt))
            figures[0] += n * cached / prompt
            figures[1] += n * mostly
            figures[2] += n * full
            figures[3] += n * cold
        return [figure * requests / known for figure in figures]

    def spread_over(self, rows: Index, columns: Index) -> Array:
        """Return the shares as a joint distribution of other occupied buckets, (rows, columns)."""
        size = max(*self.rows, *self.columns, *rows, *(self.width + columns)) + 1
        whole = np.zeros((size, size))
        whole[self.rows, self.columns] = self.values[:, 0]
        return whole[np.ix_(rows, self.width + columns)]


def _proportional(pool: Sequence[float], pairs: Sequence[tuple[int, int, float]]) -> list[float]:
    """Return the requests of each pairing, fitted to the margins as `pairing.pair_counts` does."""
    along = {i: 1.0 for i, _, _ in pairs}
    across = {j: 1.0 for _, j, _ in pairs}
    # With one bucket on either side, the first step is the last.
    for _ in range(_STEPS if len(along) > 1 and len(across) > 1 else 1):
        sums = dict.fromkeys(along, 0.0)
        for i, j, share in pairs:
            sums[i] += share * across[j]
        along = {i: pool[i] / total for i, total in sums.items()}
        sums = dict.fromkeys(across, 0.0)
        for i, j, share in pairs:
            sums[j] += share * along[i]
        across = {j: pool[j] / total for j, total in sums.items()}
    return [along[i] * share * across[j] for i, j, share in pairs]
