"""The joint distribution of prompt and computed tokens, fitted to pools that state only margins and sums.

Four steps, each on all pools at once:

1. Least squares of the pools' sums on their bucket counts pins the mean prompt of a prompt bucket.
2. Which prompt bucket goes with which computed bucket: iterative proportional fitting of every pool to its two
   margins, from a common joint distribution that is in turn the mean over the pools. (Ecological inference; Csiszar
   and Tusnady's alternating minimisation of the divergence.)
3. Least squares on the counts so found: mean computed tokens of a computed bucket among requests that surely hit, and
   mean cached tokens of each pairing. How much one request varies comes from the residuals; what a pool's sums exceed
   the fit by is shared among its requests in proportion to that (best linear prediction), so a pool's own sums hold.
4. Where both values can be equal, cold requests are told from warm ones by `splitting`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from .leastsquares import bounded_least_squares, variance_components
from .pairing import FIGURES, Buckets
from .splitting import Split, split

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

_ROUNDS = 8  # of means and variances in turn; both settle in fewer
_JOINT_ROUNDS = 30
_FIXED = 0.05  # deviation of a prompt, in blocks, below which all prompts of a bucket count as equally long
_RIDGE = 0.02  # requests that the prior of a mean weighs: next to nothing, but it settles what pools leave open
_SPARSE = 0.5
_KEEP = 1.0
_RELAX = 0.7


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """Pools of shape (n, width) apart: counts of the occupied prompt and computed buckets, and the sums, (n,)."""

    prompt: Array
    computed: Array
    requests: Array
    prompt_tokens: Array
    computed_tokens: Array

    @classmethod
    def of(cls, pools: Array, rows: Index, columns: Index, width: int) -> Margins:
        prompt = pools[:, rows]
        return cls(
            prompt=prompt,
            computed=pools[:, width + columns],
            requests=prompt.sum(axis=1),
            prompt_tokens=pools[:, -2],
            computed_tokens=pools[:, -1],
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The pairings of occupied buckets that are possible; every array (k,), `row` and `column` among the occupied.

    `surely_warm`: the computed bucket ends below the prompt bucket.
    """

    row: Index
    column: Index
    prompt_low: Array
    prompt_high: Array
    computed_low: Array
    computed_high: Array

    @property
    def surely_warm(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.computed_high < self.prompt_low)

    @property
    def cached_low(self) -> Array:
        return np.maximum(self.prompt_low - self.computed_high, 0.0)

    @property
    def cached_high(self) -> Array:
        return np.maximum(self.prompt_high - self.computed_low, self.cached_low)

    def narrowed(self, prompt: Array, variance: Array, block: int | None) -> Pairs:
        """Return the pairings with their computed range narrowed where whole blocks leave only few values.

        Where all prompts of a bucket have one length, what is computed of them is that length less whole blocks. This
        is for the estimate: no bound depends on it. A range that it would empty stays as it is.
        """
        if block is None:
            return self
        rest = np.mod(np.rint(prompt), block)
        low = rest + np.ceil((self.computed_low - rest) / block) * block
        high = rest + np.floor((self.computed_high - rest) / block) * block
        fixed = (variance < (_FIXED * block) ** 2) & (low <= high)
        return dataclasses.replace(
            self,
            computed_low=np.where(fixed, low, self.computed_low),
            computed_high=np.where(fixed, high, self.computed_high),
        )

    @classmethod
    def of(cls, prompt: Buckets, computed: Buckets, rows: Index, columns: Index) -> Pairs:
        row, column = np.nonzero(computed.low[columns][None, :] <= prompt.high[rows][:, None])
        return cls(
            row=row,
            column=column,
            prompt_low=np.maximum(prompt.low[rows[row]], 1.0),
            prompt_high=prompt.high[rows[row]],
            computed_low=computed.low[columns[column]],
            computed_high=computed.high[columns[column]],
        )


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
    computed: Array
    computed_deviation: Array
    cached: Array
    cached_variance: Array
    splits: tuple[Split | None, ...]
    average: Array

    def covers(self, pools: Array) -> bool:
        """Whether every request of these pools is in a bucket that the fit knows."""
        margins = Margins.of(pools, self.rows, self.columns, self.width)
        requests = pools[:, : self.width].sum()
        return bool(margins.prompt.sum() == requests and margins.computed.sum() == requests)

    def read(self, pools: Array) -> Array:
        """Return the estimated sums of hit ratio, mostly, fully cached and cold requests of each pool: (n, 4)."""
        return np.asarray(self.contributions(pools)[1].sum(axis=1))

    def glance(self, pool: Array) -> Array:
        """Return what `read` would of one pool, (4,), from the average of each pairing: cheaper, as good on average."""
        margins = Margins.of(pool[None], self.rows, self.columns, self.width)
        counts = pair_counts(margins, self.pairs, self.share, rounds=1)[0]
        figures = counts[0] @ self.average
        cached, prompt = self._tokens(counts, margins)
        figures[0] = counts[0] @ (cached[0] / prompt[0])
        return np.asarray(figures)

    def contributions(self, pools: Array) -> tuple[Array, Array]:
        """Return the requests of each pool and pairing, (n, k), and what these add to the four figures, (n, k, 4)."""
        margins = Margins.of(pools, self.rows, self.columns, self.width)
        counts = pair_counts(margins, self.pairs, self.share, rounds=1)[0]
        cached, prompt = self._tokens(counts, margins)
        warm, size, deviation = self._warm(counts, margins.prompt_tokens - margins.computed_tokens, cached)
        mostly = warm * self._mostly(prompt, size, deviation)
        return counts, np.stack((counts * cached / prompt, mostly, warm * self._fully(), counts - warm), axis=2)

    def _tokens(self, counts: Array, margins: Margins) -> tuple[Array, Array]:
        """Return cached and prompt tokens of a request in each pool and pairing, both (n, k)."""
        pairs = self.pairs
        prompt = _predict(counts, margins.prompt_tokens, self.prompt, self.prompt_variance)
        prompt = np.clip(prompt, pairs.prompt_low, pairs.prompt_high)
        total = margins.prompt_tokens - margins.computed_tokens
        cached = _predict(counts, total, self.cached, self.cached_variance)
        return np.clip(cached, pairs.cached_low, prompt - np.minimum(pairs.computed_low, prompt)), prompt

    def _warm(self, counts: Array, total: Array, cached: Array) -> tuple[Array, Array, Array]:
        """Return warm requests of each pool and pairing, their cached tokens, and the deviation of these."""
        warm = counts.copy()
        size = cached.copy()
        deviation = np.broadcast_to(np.sqrt(self.cached_variance), counts.shape).copy()
        spread = counts @ self.cached_variance
        for k in np.flatnonzero(~self.pairs.surely_warm):
            found = self.splits[k]
            if found is None:
                warm[:, k] = 0.0
                continue
            own = np.clip(
                total - (counts @ self.cached - counts[:, k] * self.cached[k]),
                0.0,
                counts[:, k] * self.pairs.cached_high[k],
            )
            noise = np.maximum(spread - counts[:, k] * self.cached_variance[k], 0.0)
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
        deviation = np.maximum(self.computed_deviation, 1e-3 * self.computed + 1e-9)
        chance = _normal((self.block + 0.5 - self.computed) / deviation)
        chance = np.where(self.prompt_variance < (_FIXED * self.block) ** 2, self._on_lattice(self.block), chance)
        chance = np.where(pairs.computed_high <= self.block, 1.0, chance)
        return np.where(pairs.computed_low > self.block, 0.0, chance)

    def _on_lattice(self, block: int) -> Array:
        """Return the chance of at most a block computed where all prompts of a pairing have the same length.

        Whole blocks are cached, so computed tokens are a lattice of step `block`, and only its first value will do.
        """
        pairs = self.pairs
        first = (np.rint(self.prompt) - 1) % block + 1
        lowest = first + np.ceil(np.maximum(pairs.computed_low - first, 0.0) / block) * block
        share = np.clip(1 - (self.computed - first) / block, 0.0, 1.0)
        share = np.where(first + block > pairs.computed_high, 1.0, share)
        return np.where(lowest > first, 0.0, share)


def fit(pools: Array, prompt: Buckets, computed: Buckets, *, block: int | None) -> Joint:
    """Return the joint distribution for pools of shape (n, width), n >= 1, each consistent and not empty."""
    width = len(prompt.low)
    rows = np.flatnonzero(pools[:, :width].any(axis=0))
    columns = np.flatnonzero(pools[:, width:-2].any(axis=0))
    margins = Margins.of(pools, rows, columns, width)
    pairs = Pairs.of(prompt, computed, rows, columns)
    counts, share = pair_counts(margins, pairs, None, rounds=_JOINT_ROUNDS)
    prompts, prompt_variance = _prompt_means(margins, pairs)
    pairs = pairs.narrowed(prompts, prompt_variance, block)
    means = _cached_means(margins, pairs, counts, prompts, prompt_variance)
    joint = Joint(
        rows=rows,
        columns=columns,
        width=width,
        block=block,
        pairs=pairs,
        share=share,
        prompt=prompts,
        prompt_variance=prompt_variance,
        computed=means.computed,
        computed_deviation=means.computed_deviation,
        cached=means.cached,
        cached_variance=means.cached_variance,
        splits=(),
        average=np.zeros((len(share), FIGURES)),
    )
    joint = dataclasses.replace(joint, splits=_splits(joint, margins, counts))
    counts, figures = joint.contributions(pools)
    average = figures.sum(axis=0) / np.maximum(counts.sum(axis=0), 1e-9)[:, None]
    return dataclasses.replace(joint, average=np.clip(average, 0.0, 1.0))


def pair_counts(margins: Margins, pairs: Pairs, share: Array | None, *, rounds: int) -> tuple[Array, Array]:
    """Return each pool's requests in each pairing (n, k), and the share of all requests in each (k,).

    With a `share` given and one round this reads pools with a known joint distribution; else the joint is fitted.
    """
    shape = (margins.prompt.shape[1], margins.computed.shape[1])
    possible = np.zeros(shape)
    possible[pairs.row, pairs.column] = 1.0
    joint = np.outer(margins.prompt.sum(axis=0), margins.computed.sum(axis=0)) * possible
    if share is not None:
        joint = np.zeros(shape)
        joint[pairs.row, pairs.column] = np.maximum(share, 1e-9)
    joint /= joint.sum()
    along, across = margins.prompt, np.ones_like(margins.computed)
    cells = np.zeros((len(margins.requests), *shape))
    start = 25 if share is None else 12
    for k in range(rounds):
        for _ in range(4 if k else start):
            along = margins.prompt / np.maximum(across @ joint.T, 1e-30)
            across = margins.computed / np.maximum(along @ joint, 1e-30)
        cells = along[:, :, None] * joint * across[:, None, :]
        if share is None:
            found = np.maximum(cells.sum(axis=0) - _SPARSE, 1e-3) * possible
            joint = found / found.sum() * (found / found.sum() / np.maximum(joint, 1e-12)) ** _RELAX
            joint /= joint.sum()
    return cells[:, pairs.row, pairs.column], joint[pairs.row, pairs.column]


def _prompt_means(margins: Margins, pairs: Pairs) -> tuple[Array, Array]:
    """Return mean and variance of a prompt in each pairing: those of its prompt bucket."""
    rows = margins.prompt.shape[1]
    low, high = np.zeros(rows), np.zeros(rows)
    low[pairs.row], high[pairs.row] = pairs.prompt_low, pairs.prompt_high
    mean = np.sqrt(low * high)
    variance = (0.3 * mean) ** 2
    for _ in range(_ROUNDS):
        mean = bounded_least_squares(
            margins.prompt,
            margins.prompt_tokens,
            1 / (margins.prompt @ variance),
            prior=mean,
            strength=_RIDGE / variance,
            low=low,
            high=high,
        )
        variance = variance_components(
            margins.prompt,
            margins.prompt_tokens - margins.prompt @ mean,
            variance,
            low=(1e-4 * mean) ** 2,
            high=((high - low) / 3) ** 2 + 1e-8 * mean**2,
            rounds=4,
        )
    return mean[pairs.row], variance[pairs.row]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Means:
    computed: Array
    computed_deviation: Array
    cached: Array
    cached_variance: Array


def _cached_means(
    margins: Margins, pairs: Pairs, counts: Array, prompt: Array, prompt_variance: Array
) -> _Means:
    """Return what requests of each pairing compute and have cached.

    Columns of `classes` are the computed buckets (requests that surely hit), then the pairings that may be cold: there
    the computed tokens are the prompt less what is cached, so these leave the computed sum before it is regressed.
    Weights fall with a pool's residual (Student's t, 3 degrees of freedom): a few odd requests must not bend the mean
    that decides whether a whole bucket counts as fully cached.
    """
    warm = pairs.surely_warm
    total = margins.prompt_tokens - margins.computed_tokens
    own = np.flatnonzero(~warm)
    used, of_pair = np.unique(pairs.column[warm], return_inverse=True)
    columns = np.zeros((len(total), len(used)))
    np.add.at(columns.T, of_pair, counts[:, warm].T)
    low, high = np.zeros(len(used)), np.zeros(len(used))
    low[of_pair], high[of_pair] = pairs.computed_low[warm], pairs.computed_high[warm]
    computed = np.sqrt(np.maximum(low, 1.0) * np.maximum(high, 1.0))
    cached = np.clip(0.5 * prompt, pairs.cached_low, pairs.cached_high)
    cached[own] = 0.0
    cached[warm] = np.clip(prompt[warm] - computed[of_pair], pairs.cached_low[warm], pairs.cached_high[warm])
    variances = np.concatenate(((0.3 * computed) ** 2, (0.1 * prompt[own]) ** 2)) + 1e-9
    ceiling = np.concatenate((((high - low) / 3) ** 2, (prompt[own] / 3) ** 2)) + 1e-6
    trust = np.ones(len(total))
    classes = np.concatenate((columns, counts[:, own]), axis=1)
    pair_variance = np.zeros(len(prompt))
    for _ in range(_ROUNDS):
        rest = margins.computed_tokens - counts[:, own] @ (prompt - cached)[own]
        noise = np.maximum(classes @ variances, 1e-9)
        if len(used):
            computed = bounded_least_squares(
                columns,
                rest,
                trust / noise,
                prior=computed,
                strength=_RIDGE / variances[: len(used)],
                low=low,
                high=high,
            )
        residual = rest - columns @ computed
        trust = 4 / (3 + residual**2 / noise)
        floor = np.concatenate(((1e-3 * computed) ** 2, (1e-3 * prompt[own]) ** 2)) + 1e-9
        variances = variance_components(
            classes, residual * np.sqrt(trust), variances, low=floor, high=np.maximum(ceiling, floor), rounds=5
        )
        pair_variance[own] = variances[len(used) :]
        pair_variance[warm] = variances[: len(used)][of_pair] + prompt_variance[warm]
        prior = cached.copy()
        prior[warm] = prompt[warm] - computed[of_pair]
        cached = bounded_least_squares(
            counts,
            total,
            1 / np.maximum(counts @ pair_variance, 1e-9),
            prior=np.clip(prior, pairs.cached_low, pairs.cached_high),
            strength=_KEEP / pair_variance,
            low=pairs.cached_low,
            high=pairs.cached_high,
        )
    deviation = np.zeros(len(prompt))
    deviation[warm] = np.sqrt(variances[: len(used)])[of_pair]
    mean = prompt - cached
    mean[warm] = computed[of_pair]
    deviation[own] = np.sqrt(pair_variance[own])
    pair_variance = variance_components(
        counts,
        total - counts @ cached,
        pair_variance,
        low=(1e-4 * prompt) ** 2,
        high=((pairs.prompt_high - pairs.prompt_low) / 2) ** 2 + 1.0,
        rounds=5,
    )
    return _Means(computed=mean, computed_deviation=deviation, cached=cached, cached_variance=pair_variance)


def _splits(joint: Joint, margins: Margins, counts: Array) -> tuple[Split | None, ...]:
    """Return for each pairing that may be cold how its requests fall into cold and warm; None elsewhere."""
    total = margins.prompt_tokens - margins.computed_tokens
    everything = counts @ joint.cached
    spread = counts @ joint.cached_variance
    found: list[Split | None] = []
    for k, warm in enumerate(joint.pairs.surely_warm):
        if warm:
            found.append(None)
            continue
        number, greatest = counts[:, k], float(joint.pairs.cached_high[k])
        own = np.clip(total - (everything - number * joint.cached[k]), 0.0, number * greatest)
        noise = np.maximum(spread - number * joint.cached_variance[k], 0.0)
        # A cache serves whole blocks: a likelihood, not a bound, may count on it.
        found.append(split(number, own, noise, smallest=float(joint.block or 1), greatest=greatest))
    return tuple(found)


def _predict(counts: Array, total: Array, mean: Array, variance: Array) -> Array:
    """Return the mean value of a request in each pool and pairing, (n, k), once the pool's sum is known."""
    excess = (total - counts @ mean) / np.maximum(counts @ variance, 1e-12)
    return mean + variance * excess[:, None]


def _normal(z: Array) -> Array:
    """Return the normal distribution function, by the logistic that is within 0.01 of it."""
    return np.asarray(1 / (1 + np.exp(-np.clip(1.702 * z, -40, 40))))
