"""The joint distribution of prompt and computed tokens, fitted to pools that state only margins and sums.

Four steps, each on all pools at once:

1. Least squares of the pools' sums on their bucket counts pins the mean prompt of a prompt bucket (`means`).
2. Which prompt bucket goes with which computed bucket: iterative proportional fitting of every pool to its two
   margins, from a common joint distribution that is in turn the mean over the pools (`pairing`; Csiszar and
   Tusnady's alternating minimisation of the divergence).
3. Least squares on the counts so found: mean computed tokens of a computed bucket among requests that surely hit,
   and mean cached tokens of each pairing (`means`). How much one request varies comes from the residuals; what a
   pool's sums exceed the fit by is shared among its requests in proportion to that (best linear prediction), so
   that a pool's own sums hold.
4. Where both values can be equal, cold requests are told from warm ones by `splitting`.

The estimate uses that a cache serves whole blocks; no bound does.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.joint.bounds import Buckets
from prefixwatch.figures.joint.fitted import Fitted
from prefixwatch.figures.joint.means import Means, cached_means, prompt_means
from prefixwatch.figures.joint.pairing import (
    LEAST_SHARE,
    PASSING_ROUNDS,
    SETTLING_ROUNDS,
    Margins,
    Pairs,
    equally_long,
    fit_pairs,
    independent,
    pair_counts,
)
from prefixwatch.figures.joint.splitting import Split, split

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """A fit: for each possible pairing its share, and mean and variance of one request's tokens in it."""

    rows: Index
    columns: Index
    width: int
    block: int | None
    pairs: Pairs
    share: Array
    prompt: Array
    prompt_variance: Array
    means: Means
    splits: tuple[Split | None, ...]

    def kept(self, average: Array) -> Fitted:
        """Return what to keep; `average`: the figures of a request of each pairing, (k, 4)."""
        pairs, means = self.pairs, self.means
        tokens = (self.prompt, self.prompt_variance, pairs.prompt_low, pairs.prompt_high)
        cached = (means.cached, means.cached_variance, pairs.cached_low, pairs.computed_low)
        share = np.maximum(self.share, LEAST_SHARE)
        return Fitted(
            rows=tuple(self.rows[pairs.row].tolist()),
            columns=tuple((self.width + self.columns[pairs.column]).tolist()),
            width=self.width,
            values=np.column_stack((share, *tokens, *cached, average[:, 1:])),
            average=tuple((self.share @ average).tolist()),
        )

    def contributions(self, margins: Margins) -> tuple[Array, Array]:
        """Return the requests of each pool and pairing, (n, k), and what these add to the four figures, (n, k, 4)."""
        counts = pair_counts(margins, self.pairs, self.share)
        cached, prompt = self._tokens(counts, margins)
        warm, size, deviation = self._warm(counts, margins.prompt_tokens - margins.computed_tokens, cached)
        mostly = warm * self._mostly(prompt, size, deviation)
        return counts, np.stack((counts * cached / prompt, mostly, warm * self._fully(), counts - warm), axis=2)

    def _tokens(self, counts: Array, margins: Margins) -> tuple[Array, Array]:
        """Return cached and prompt tokens of a request in each pool and pairing, both (n, k)."""
        pairs = self.pairs
        prompt = _predict(counts, margins.prompt_tokens, self.prompt, self.prompt_variance)
        prompt = np.minimum(np.maximum(prompt, pairs.prompt_low), pairs.prompt_high)
        total = margins.prompt_tokens - margins.computed_tokens
        cached = _predict(counts, total, self.means.cached, self.means.cached_variance)
        most = prompt - np.minimum(pairs.computed_low, prompt)
        return np.minimum(np.maximum(cached, pairs.cached_low), most), prompt

    def _warm(self, counts: Array, total: Array, cached: Array) -> tuple[Array, Array, Array]:
        """Return warm requests of each pool and pairing, their cached tokens, and the deviation of these."""
        warm = counts.copy()
        size = cached.copy()
        deviation = np.broadcast_to(np.sqrt(self.means.cached_variance), counts.shape).copy()
        spread = counts @ self.means.cached_variance
        for k in np.flatnonzero(~self.pairs.surely_warm):
            found = self.splits[k]
            if found is None:
                warm[:, k] = 0.0
                continue
            own = total - (counts @ self.means.cached - counts[:, k] * self.means.cached[k])
            noise = np.maximum(spread - counts[:, k] * self.means.cached_variance[k], 0.0)
            warm[:, k] = found.warm(counts[:, k], own, noise)
            size[:, k] = found.mean
            deviation[:, k] = found.deviation
        return warm, size, deviation

    def _mostly(self, prompt: Array, size: Array, deviation: Array) -> Array:
        """Return the chance that a warm request of a pairing has at least half of its prompt cached."""
        pairs = self.pairs
        chance = _normal((size - 0.5 * prompt) / np.maximum(deviation, 1e-3 * prompt))
        chance = np.where(2 * pairs.computed_high <= pairs.prompt_low, 1.0, chance)
        return np.where(2 * pairs.computed_low > pairs.prompt_high, 0.0, chance)

    def _fully(self) -> Array:
        """Return the chance that a warm request of a pairing computes at most a block."""
        if self.block is None:
            return np.zeros(len(self.share))
        pairs = self.pairs
        deviation = np.maximum(self.means.computed_deviation, 1e-3 * self.means.computed + 1e-9)
        chance = _normal((self.block + 0.5 - self.means.computed) / deviation)
        chance = np.where(equally_long(self.prompt_variance, self.block), self._on_lattice(self.block), chance)
        chance = np.where(pairs.computed_high <= self.block, 1.0, chance)
        return np.where(pairs.computed_low > self.block, 0.0, chance)

    def _on_lattice(self, block: int) -> Array:
        """Return the chance of at most a block computed where all prompts of a pairing have the same length.

        Whole blocks are cached, so computed tokens are a lattice of step `block`, and only its first value will do.
        """
        pairs = self.pairs
        first = (np.rint(self.prompt) - 1) % block + 1
        lowest = first + np.ceil(np.maximum(pairs.computed_low - first, 0.0) / block) * block
        share = np.clip(1 - (self.means.computed - first) / block, 0.0, 1.0)
        share = np.where(first + block > pairs.computed_high, 1.0, share)
        return np.where(lowest > first, 0.0, share)


def fit(
    pools: Array,
    prompt: Buckets,
    computed: Buckets,
    *,
    block: int | None,
    before: Fitted | None = None,
    thorough: bool = True,
) -> tuple[Fitted, Array]:
    """Fit the joint distribution to pools of shape (n, width), n >= 1, each consistent and not empty.

    Returns what is kept of it, and the estimated sums of hit ratio, mostly, fully cached and cold requests of each pool,
    (n, 4). `before`: an earlier fit of the same buckets, to go on from. `thorough`: spend some 0.1 s, not 0.02.
    """
    width = len(prompt.low)
    rows = np.flatnonzero(pools[:, :width].any(axis=0))
    columns = np.flatnonzero(pools[:, width:-2].any(axis=0))
    margins = Margins.of(pools, rows, columns, width)
    pairs = Pairs.of(prompt, computed, rows, columns)
    start = independent(margins, pairs)
    if before is not None:
        start = 0.9 * before.spread_over(rows, columns) + 0.1 * start
    counts, share = fit_pairs(margins, pairs, start, rounds=SETTLING_ROUNDS if thorough else PASSING_ROUNDS)
    prompts, prompt_variance = prompt_means(margins, pairs, counts)
    pairs = pairs.narrowed(prompts, prompt_variance, block)
    joint = Joint(
        rows=rows,
        columns=columns,
        width=width,
        block=block,
        pairs=pairs,
        share=share,
        prompt=prompts,
        prompt_variance=prompt_variance,
        means=cached_means(margins, pairs, counts, prompts, prompt_variance),
        splits=(),
    )
    joint = dataclasses.replace(joint, splits=_splits(joint, margins, counts, most_pools=256 if thorough else 32))
    counts, figures = joint.contributions(margins)
    average = figures.sum(axis=0) / np.maximum(counts.sum(axis=0), 1e-9)[:, None]
    return joint.kept(np.clip(average, 0.0, 1.0)), figures.sum(axis=1)


def _splits(joint: Joint, margins: Margins, counts: Array, *, most_pools: int) -> tuple[Split | None, ...]:
    """Return for each pairing that may be cold how its requests fall into cold and warm; None elsewhere."""
    total = margins.prompt_tokens - margins.computed_tokens
    everything = counts @ joint.means.cached
    spread = counts @ joint.means.cached_variance
    found: list[Split | None] = []
    for k, warm in enumerate(joint.pairs.surely_warm):
        if warm:
            found.append(None)
            continue
        number, greatest = counts[:, k], float(joint.pairs.cached_high[k])
        mean = float(joint.means.cached[k])
        own = total - (everything - number * mean)
        noise = np.maximum(spread - number * joint.means.cached_variance[k], 0.0)
        # A cache serves whole blocks: a likelihood, not a bound, may count on it.
        likely = _at_least_zero(mean, float(joint.means.cached_error[k]))
        found.append(
            split(
                number,
                own,
                noise,
                mean=likely,
                smallest=float(joint.block or 1),
                greatest=greatest,
                most_pools=most_pools,
            )
        )
    return tuple(found)


def _at_least_zero(mean: float, error: float) -> float:
    """Return the mean of a normal distribution cut off below zero.

    Least squares gives 0 where little is cached and much is noise; only with a small error does 0 mean nothing.
    """
    z = mean / max(error, 1e-9)
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return mean + error * density / (0.5 * (1 + math.erf(z / math.sqrt(2))))


def _predict(counts: Array, total: Array, mean: Array, variance: Array) -> Array:
    """Return the mean value of a request in each pool and pairing, (n, k), once the pool's sum is known."""
    excess = (total - counts @ mean) / np.maximum(counts @ variance, 1e-12)
    return mean + variance * excess[:, None]


def _normal(z: Array) -> Array:
    """Return the normal distribution function, by the logistic that is within 0.01 of it."""
    return np.asarray(1 / (1 + np.exp(-np.clip(1.702 * z, -40, 40))))
