"""Which prompt bucket goes with which computed bucket, from the margins of many pools (ecological inference)."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.joint.bounds import Buckets

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

LEAST_SHARE = 1e-9  # of a pairing, so that any pool's margins can be fitted
SETTLING_ROUNDS = 200  # from nothing: it converges slowly where pairings differ little
PASSING_ROUNDS = 15  # from the fit before
_SPARSE = 0.5  # requests that a pairing gives up a round
_STRETCH = 0.7  # by how much a step is longer than the plain one; below 1 it converges
_FIXED = 0.05  # greatest deviation of equally long prompts, in blocks


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
        """Take the occupied prompt buckets `rows` and computed buckets `columns`; `width` prompt buckets in all."""
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
    """The pairings of occupied buckets that are possible; every array (k,), `row` and `column` among the occupied."""

    row: Index
    column: Index
    prompt_low: Array
    prompt_high: Array
    computed_low: Array
    computed_high: Array

    @property
    def surely_warm(self) -> npt.NDArray[np.bool_]:
        """Whether every request of the pairing had something cached."""
        return np.asarray(self.computed_high < self.prompt_low)

    @property
    def cached_low(self) -> Array:
        """Fewest cached tokens of a request."""
        return np.maximum(self.prompt_low - self.computed_high, 0.0)

    @property
    def cached_high(self) -> Array:
        """Most cached tokens of a request."""
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
        fixed = equally_long(variance, block) & (low <= high)
        return dataclasses.replace(
            self,
            computed_low=np.where(fixed, low, self.computed_low),
            computed_high=np.where(fixed, high, self.computed_high),
        )

    @classmethod
    def of(cls, prompt: Buckets, computed: Buckets, rows: Index, columns: Index) -> Pairs:
        """Take the occupied prompt buckets `rows` and computed buckets `columns`."""
        row, column = np.nonzero(computed.low[columns][None, :] <= prompt.high[rows][:, None])
        return cls(
            row=row,
            column=column,
            prompt_low=np.maximum(prompt.low[rows[row]], 1.0),
            prompt_high=prompt.high[rows[row]],
            computed_low=computed.low[columns[column]],
            computed_high=computed.high[columns[column]],
        )


def equally_long(variance: Array, block: int) -> npt.NDArray[np.bool_]:
    """Whether prompts of this variance can be taken to have one length, next to a block."""
    return np.asarray(variance < (_FIXED * block) ** 2)


def pair_counts(margins: Margins, pairs: Pairs, share: Array) -> Array:
    """Return each pool's requests in each pairing, (n, k), from the share of all requests in each, (k,)."""
    joint = np.zeros((margins.prompt.shape[1], margins.computed.shape[1]))
    joint[pairs.row, pairs.column] = np.maximum(share, LEAST_SHARE)
    cells, _ = _proportional(margins, joint, np.ones(margins.computed.shape), steps=8)
    return cells[:, pairs.row, pairs.column]


def fit_pairs(margins: Margins, pairs: Pairs, joint: Array, *, rounds: int) -> tuple[Array, Array]:
    """Return each pool's requests in each pairing, (n, k), and the share of all requests in each, (k,), fitted.

    Alternates between fitting every pool to its margins from the common joint distribution, and taking their mean as
    the new one. Two things are added to the textbook: every pairing gives up half a request a round, so that one that
    the pools do not need dies out (a sparse Dirichlet prior), and steps are lengthened, since plain ones crawl.
    """
    possible = np.zeros_like(joint)
    possible[pairs.row, pairs.column] = 1.0
    cells, across = _proportional(margins, joint, np.ones_like(margins.computed), steps=25)
    if min(joint.shape) == 1:
        rounds = 1  # the margins leave nothing to find
    for _ in range(rounds):
        found = np.maximum(cells.sum(axis=0) - _SPARSE, 1e-3) * possible
        found /= found.sum()
        joint = found * (found / np.maximum(joint, 1e-12)) ** _STRETCH
        joint /= joint.sum()
        cells, across = _proportional(margins, joint, across, steps=4)
    return cells[:, pairs.row, pairs.column], joint[pairs.row, pairs.column]


def independent(margins: Margins, pairs: Pairs) -> Array:
    """Return the joint distribution that the margins alone suggest, over the possible pairings."""
    joint = np.zeros((margins.prompt.shape[1], margins.computed.shape[1]))
    expected = np.outer(margins.prompt.sum(axis=0), margins.computed.sum(axis=0))
    joint[pairs.row, pairs.column] = expected[pairs.row, pairs.column]
    return np.asarray(joint / max(joint.sum(), 1e-12))


def _proportional(margins: Margins, joint: Array, across: Array, *, steps: int) -> tuple[Array, Array]:
    """Scale rows and columns of the joint distribution to each pool's margins: (n, rows, columns), and the scaling.

    `across` is the scaling of columns to begin with, (n, columns).
    """
    along = margins.prompt
    if min(joint.shape) == 1:
        steps = 1
    for _ in range(steps):
        along = margins.prompt / np.maximum(across @ joint.T, 1e-30)
        across = margins.computed / np.maximum(along @ joint, 1e-30)
    return along[:, :, None] * joint * across[:, None, :], across
