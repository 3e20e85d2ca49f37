"""Cold or warm where the buckets do not tell: requests whose prompt and computed tokens fall into the same range.

Such a request may have hit nothing, or a little. What tells is how the cached tokens of a pool come in lumps: when each
warm request carries about s cached tokens, a pool of n requests carries about s times a whole number. The split is a
posterior over a grid of s, its spread and the share of cold requests, from the likelihood of all pools.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_QUANTILES = np.array((0.5, 0.75, 0.9, 0.97, 1.0))  # of what the pools themselves suggest
_LADDER = 12  # sizes tried between the smallest and the greatest possible
_SPREADS = np.array((0.003, 0.1, 0.45))  # standard deviation over mean of a warm request's cached tokens
_MOST_KEPT = 6  # of the hypotheses, the likeliest
_STEPS = np.arange(-4, 5)  # numbers of warm requests summed over, in 3/4 standard deviations or whole requests
_MOST_REQUESTS = 4096
_LOG_FACTORIAL = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1.0, _MOST_REQUESTS + 1)))))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Weighted hypotheses, each of shape (m,): cached tokens of a warm request, their spread, share of cold ones."""

    size: Array
    spread: Array
    cold: Array
    weight: Array

    @property
    def mean(self) -> float:
        """Cached tokens of a warm request."""
        return float(self.weight @ self.size)

    @property
    def deviation(self) -> float:
        """Standard deviation of one warm request's cached tokens, doubt about the mean included."""
        variance = (self.spread * self.size) ** 2 + (self.size - self.mean) ** 2
        return float(np.sqrt(self.weight @ variance))

    def warm(self, counts: Array, cached: Array, noise: Array) -> Array:
        """Return the expected number of warm requests for pools of `counts` requests and `cached` tokens, (n,).

        `noise` is the variance of `cached` that comes from elsewhere in the pool.
        """
        _, expected = _read(counts, cached, noise, self.size, self.spread, self.cold)
        return np.clip(expected @ self.weight, 0.0, counts)


def split(
    counts: Array, cached: Array, noise: Array, *, mean: float, smallest: float, greatest: float, most_pools: int
) -> Split | None:
    """Return the split of a cell from its pools; None: nothing was cached in it, every request is cold.

    `mean`: cached tokens of a request of the cell, cold ones included; `smallest` and `greatest` bound those of a warm
    one. `cached` may be negative: it is what other cells leave of a pool's sum. The hypotheses are weighed by at most
    `most_pools` pools.
    """
    total = float(counts.sum())
    if total <= 0 or greatest <= smallest or mean <= 1e-6 * greatest:
        return None
    floor = min(0.25 / total, 0.25)
    size, spread, prior = _grid(counts, cached, max(mean, smallest), max(greatest, mean))
    cold = np.clip(1 - mean / size, floor, 1 - floor)
    some = np.flatnonzero(counts >= 0.5)
    some = some[:: len(some) // most_pools + 1]
    likelihood, _ = _read(counts[some], cached[some], noise[some], size, spread, cold)
    score = likelihood.sum(axis=0) + prior
    weight = np.exp(score - score.max())
    kept = np.argsort(weight)[-_MOST_KEPT:]
    weight = weight[kept] / weight[kept].sum()
    return Split(size=size[kept], spread=spread[kept], cold=cold[kept], weight=weight)


def _grid(counts: Array, cached: Array, low: float, high: float) -> tuple[Array, Array, Array]:
    """Return sizes, spreads and log prior weights of the hypotheses: sizes evenly over their logarithm.

    Beside the ladder stand the sizes that the pools themselves suggest: a pool without a cold request shows s itself.
    """
    ladder = low * (high / low) ** np.linspace(0, 1, _LADDER)
    near = low * np.array((1.003, 1.02))
    filled = counts >= 0.5
    each = np.sort(cached[filled] / counts[filled])
    own = each[np.rint(_QUANTILES * (len(each) - 1)).astype(np.intp)] if len(each) else each
    sizes = np.unique(np.minimum(np.maximum(np.concatenate((ladder, near, own)), low), high))
    logs = np.log(sizes)
    ends = np.concatenate((logs[:1], (logs[1:] + logs[:-1]) / 2, logs[-1:]))
    prior = np.log(np.maximum(np.diff(ends), 1e-6))
    return np.repeat(sizes, len(_SPREADS)), np.tile(_SPREADS, len(sizes)), np.repeat(prior, len(_SPREADS))


def _read(counts: Array, cached: Array, noise: Array, size: Array, spread: Array, cold: Array) -> tuple[Array, Array]:
    """Return log likelihood and expected warm requests of each pool under each hypothesis, both (pools, m).

    The number of warm requests is binomial, their cached tokens normal; the sum runs over the numbers that matter, a
    grid around the mean that both would have if the number were normal, too.
    """
    number = np.clip(np.rint(counts), 0, _MOST_REQUESTS)[:, None]
    # Counts are themselves estimates, tokens are whole: neither is ever exact to less than this.
    fixed = noise[:, None] + 1.0 + number * (1e-3 * size) ** 2
    own = (spread * size) ** 2
    expected = number * (1 - cold)
    loose = expected * cold + 0.25
    tight = (fixed + expected * own) / size**2
    centre = np.rint((expected * tight + cached[:, None] / size * loose) / (loose + tight))
    step = np.maximum(np.rint(0.75 * np.sqrt(loose * tight / (loose + tight))), 1.0)
    warm = np.clip(centre, 0, number)[:, :, None] + _STEPS * step[:, :, None]
    outside = (warm < 0) | (warm > number[:, :, None])
    warm = np.clip(warm, 0, number[:, :, None])
    few, rest = warm.astype(np.intp), (number[:, :, None] - warm).astype(np.intp)
    ways = _LOG_FACTORIAL[number.astype(np.intp)][:, :, None] - _LOG_FACTORIAL[few] - _LOG_FACTORIAL[rest]
    chance = ways + warm * np.log1p(-cold)[:, None] + rest * np.log(cold)[:, None]
    variance = fixed[:, :, None] + warm * own[:, None]
    distance = cached[:, None, None] - warm * size[:, None]
    terms = np.where(outside, -np.inf, chance - 0.5 * (distance**2 / variance + np.log(variance)))
    top = terms.max(axis=2, keepdims=True)
    parts = np.exp(terms - top)
    whole = parts.sum(axis=2)
    return top[:, :, 0] + np.log(whole * step), (parts * warm).sum(axis=2) / whole
