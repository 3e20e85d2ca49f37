"""Bounded least squares and variance components, for a handful of unknowns and a few hundred sums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def bounded_least_squares(
    counts: Array, sums: Array, weights: Array, *, prior: Array, strength: Array, low: Array, high: Array
) -> Array:
    """Return the means m, shape (k,), with low <= m <= high that best explain sums = counts @ m.

    `counts` (n, k) and `sums`, `weights` (n,) are one row a pool. Minimises the weighted squares plus
    strength * (m - prior)^2, which keeps unknowns that the pools do not tell apart where they were. An active-set
    search: bounds are few and seldom reached, so it ends after a solve or two. Where they leave one value only, it is
    taken from the start.
    """
    size = len(prior)
    weighted = counts.T * weights
    normal = weighted @ counts
    normal.ravel()[:: size + 1] += strength
    right = weighted @ (sums - counts @ prior)
    below, above = low - prior, high - prior
    if size == 1:
        return np.asarray(prior + np.minimum(np.maximum(right / normal[0], below), np.maximum(below, above)))
    movable = above > below
    free, step = movable.copy(), below.copy()
    for _ in range(3 * size + 3):
        if free.all():
            step[:] = np.linalg.solve(normal, right)
        elif free.any():
            pinned = right - normal[:, ~free] @ step[~free]
            step[free] = np.linalg.solve(normal[np.ix_(free, free)], pinned[free])
        excess = np.where(free, np.maximum(below - step, step - above), -np.inf)
        worst = int(excess.argmax())
        if excess[worst] > 1e-9:
            free[worst] = False
            step[worst] = below[worst] if step[worst] < below[worst] else above[worst]
            continue
        held = movable & ~free
        if not held.any():
            break
        pull = right - normal @ step
        inward = np.where(held, np.where(step <= below, pull, -pull), -np.inf)
        best = int(inward.argmax())
        if inward[best] <= 1e-9 * np.abs(right).max(initial=1e-30):
            break
        free[best] = True
    return prior + np.minimum(np.maximum(step, below), np.maximum(below, above))


def variance_components(
    counts: Array, residuals: Array, variances: Array, *, low: Array, high: Array, rounds: int
) -> Array:
    """Return the variance of one request's value in each class, shape (k,), within [low, high].

    A pool's residual has variance counts @ variances. The update multiplies each variance by the square root of the
    ratio that the likelihood's gradient balances (Zhou et al., MM algorithms for variance components, 2019).
    """
    for _ in range(rounds):
        precision = 1 / np.maximum(counts @ variances, 1e-12)
        found = counts.T @ (residuals * precision) ** 2
        expected = counts.T @ precision
        wanted = variances * np.sqrt((found + 1e-12) / (expected + 1e-12))
        variances = np.minimum(np.maximum(wanted, low), high)  # a third of the time of np.clip on arrays this small
    return variances
