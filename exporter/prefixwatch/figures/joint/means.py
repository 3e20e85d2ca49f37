"""Mean and variance of one request's tokens in each bucket and pairing, by least squares over the pools' sums."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.joint.leastsquares import bounded_least_squares, variance_components
from prefixwatch.figures.joint.pairing import Margins, Pairs

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

_PROMPT_ROUNDS = 8  # of means and variances in turn; fewer miss that all prompts of a bucket are equally long
_ROUNDS = 4  # of the computed and cached ones; more do not make the estimates better
_PAIR_ROUNDS = 2  # of the pairings, which begin from their buckets
_RIDGE = 0.02  # requests that a mean's prior weighs: next to nothing, but it settles what the pools leave open
_KEEP = 1.0  # the same for a pairing's cached tokens, whose prior comes from the bucket means


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a request of each pairing computes and has cached: means and spreads, each (k,).

    `cached_error`: standard error of the mean of cached tokens.
    """

    computed: Array
    computed_deviation: Array
    cached: Array
    cached_variance: Array
    cached_error: Array


def prompt_means(margins: Margins, pairs: Pairs, counts: Array) -> tuple[Array, Array]:
    """Return mean and variance of a prompt in each pairing, (k,), given the requests of each pool in it, (n, k).

    First those of each prompt bucket, whose counts are certain; then of its pairings, as far as they differ.
    """
    rows = margins.prompt.shape[1]
    low, high = np.zeros(rows), np.zeros(rows)
    low[pairs.row], high[pairs.row] = pairs.prompt_low, pairs.prompt_high
    mean = np.sqrt(low * high)
    variance = (0.3 * mean) ** 2
    for _ in range(_PROMPT_ROUNDS):
        mean, variance = _improved(
            margins.prompt, margins.prompt_tokens, mean, variance, ridge=_RIDGE, low=low, high=high
        )
    mean, variance, low, high = (values[pairs.row] for values in (mean, variance, low, high))
    for _ in range(_PAIR_ROUNDS if len(pairs.row) > rows else 0):
        mean, variance = _improved(counts, margins.prompt_tokens, mean, variance, ridge=_KEEP, low=low, high=high)
    return mean, variance


def _improved(
    counts: Array, sums: Array, mean: Array, variance: Array, *, ridge: float, low: Array, high: Array
) -> tuple[Array, Array]:
    """Return better means, and with them better variances, of one request's tokens in each class, (k,)."""
    mean = bounded_least_squares(
        counts,
        sums,
        1 / np.maximum(counts @ variance, 1e-9),
        prior=mean,
        strength=ridge / variance,
        low=low,
        high=high,
    )
    floor = (1e-4 * mean) ** 2
    ceiling = ((high - low) / 3) ** 2 + floor
    variance = variance_components(counts, sums - counts @ mean, variance, low=floor, high=ceiling, rounds=3)
    return mean, variance


def cached_means(margins: Margins, pairs: Pairs, counts: Array, prompt: Array, prompt_variance: Array) -> Means:
    """Return what requests of each pairing compute and have cached, given the requests of each pool in it, (n, k)."""
    search = _Search(margins, pairs, counts, prompt, prompt_variance)
    for _ in range(_ROUNDS):
        search.step()
    return search.result()


class _Search:
    """Means of computed and cached tokens and their variances, improved in turn.

    Classes are the computed buckets (of the requests that surely hit), then the pairings that may be cold. Of those,
    computed tokens are the prompt less what is cached, so they leave the computed sum before it is regressed on the
    buckets. Weights fall with a pool's residual (Student's t, 3 degrees of freedom): a few odd requests must not
    bend the mean that decides whether a whole bucket counts as fully cached.
    """

    def __init__(self, margins: Margins, pairs: Pairs, counts: Array, prompt: Array, prompt_variance: Array) -> None:
        self._pairs, self._counts, self._prompt, self._prompt_variance = pairs, counts, prompt, prompt_variance
        self._computed_sums = margins.computed_tokens
        self._cached_sums = margins.prompt_tokens - margins.computed_tokens
        self._warm = np.flatnonzero(pairs.surely_warm)
        self._open = np.flatnonzero(~pairs.surely_warm)
        used, self._bucket = np.unique(pairs.column[self._warm], return_inverse=True)
        buckets = np.zeros((len(counts), len(used)))
        np.add.at(buckets.T, self._bucket, counts[:, self._warm].T)
        self._buckets = buckets
        self._classes = np.concatenate((buckets, counts[:, self._open]), axis=1)
        self._low, self._high = np.full(len(used), np.inf), np.zeros(len(used))
        np.minimum.at(self._low, self._bucket, pairs.computed_low[self._warm])
        np.maximum.at(self._high, self._bucket, pairs.computed_high[self._warm])
        self._computed = np.sqrt(np.maximum(self._low, 1.0) * np.maximum(self._high, 1.0))
        self._cached_low, self._cached_high = pairs.cached_low, pairs.cached_high
        self._cached = self._from_buckets(np.zeros(len(prompt)))
        self._variances = np.concatenate(((0.3 * self._computed) ** 2, (0.1 * prompt[self._open]) ** 2)) + 1e-9
        self._pair_variance = np.ones(len(prompt))

    def step(self) -> None:
        """Improve the bucket means, then the variances, then the cached tokens of each pairing."""
        noise = np.maximum(self._classes @ self._variances, 1e-9)
        rest = self._computed_sums - self._counts[:, self._open] @ (self._prompt - self._cached)[self._open]
        trust = self._trust(rest - self._buckets @ self._computed, noise)
        if len(self._computed):
            self._computed = bounded_least_squares(
                self._buckets,
                rest,
                trust / noise,
                prior=self._computed,
                strength=_RIDGE / self._variances[: len(self._computed)],
                low=self._low,
                high=self._high,
            )
        self._spread(rest - self._buckets @ self._computed, noise)
        self._cached = bounded_least_squares(
            self._counts,
            self._cached_sums,
            1 / np.maximum(self._counts @ self._pair_variance, 1e-9),
            prior=self._from_buckets(self._cached),
            strength=_KEEP / self._pair_variance,
            low=self._cached_low,
            high=self._cached_high,
        )

    def result(self) -> Means:
        """Return the means, and the variance of cached tokens that the final residuals show."""
        computed, deviation = self._prompt - self._cached, np.sqrt(self._pair_variance)
        computed[self._warm] = self._computed[self._bucket]
        deviation[self._warm] = np.sqrt(self._variances[: len(self._computed)])[self._bucket]
        variance = variance_components(
            self._counts,
            self._cached_sums - self._counts @ self._cached,
            self._pair_variance,
            low=(1e-4 * self._prompt) ** 2,
            high=((self._pairs.prompt_high - self._pairs.prompt_low) / 2) ** 2 + 1.0,
            rounds=5,
        )
        weights = 1 / np.maximum(self._counts @ variance, 1e-9)
        normal = self._counts.T @ (self._counts * weights[:, None]) + np.diag(_KEEP / variance)
        return Means(
            computed=computed,
            computed_deviation=deviation,
            cached=self._cached,
            cached_variance=variance,
            cached_error=np.sqrt(np.diag(np.linalg.inv(normal))),
        )

    def _spread(self, residual: Array, noise: Array) -> None:
        """Improve the variances, of the classes and with them of the pairings."""
        size = len(self._computed)
        own = self._prompt[self._open]
        low = np.concatenate(((1e-3 * self._computed) ** 2, (1e-3 * own) ** 2)) + 1e-9
        high = np.concatenate((((self._high - self._low) / 3) ** 2, (own / 3) ** 2)) + 1e-6
        trust = self._trust(residual, noise)
        self._variances = variance_components(
            self._classes,
            residual * np.sqrt(trust),
            self._variances,
            low=low,
            high=np.maximum(high, low),
            rounds=3,
        )
        self._pair_variance[self._open] = self._variances[size:]
        of_bucket = self._variances[:size][self._bucket]
        self._pair_variance[self._warm] = of_bucket + self._prompt_variance[self._warm]

    def _from_buckets(self, cached: Array) -> Array:
        """Return cached tokens with those of surely warm pairings as prompt less the bucket's computed tokens."""
        found = cached.copy()
        found[self._warm] = self._prompt[self._warm] - self._computed[self._bucket]
        return np.minimum(np.maximum(found, self._cached_low), self._cached_high)

    @staticmethod
    def _trust(residual: Array, noise: Array) -> Array:
        return np.asarray(4 / (3 + residual**2 / noise))
