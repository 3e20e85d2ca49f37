"""A small linear program: minimise costs . x over x >= 0 with matrix @ x = target, for its dual values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_ARTIFICIAL_COST = 1e3  # far above any figure, so that an artificial variable leaves as soon as it can
_TOLERANCE = 1e-9


def dual_values(matrix: Array, target: Array, costs: Array, *, steps: int = 80) -> Array:
    """Return one dual value a row of `matrix` (m, n), m small; `target` (m,) not negative, `costs` (n,).

    Revised simplex from an artificial basis, largest reduced cost first. Where it has not ended after `steps` pivots
    the values are those of the last basis: callers must not rely on them to be optimal or feasible.
    """
    size = len(target)
    basis_costs = np.full(size, _ARTIFICIAL_COST)
    inverse = np.eye(size)
    level = target.astype(np.float64)
    for _ in range(steps):
        dual = basis_costs @ inverse
        reduced = costs - dual @ matrix
        entering = int(reduced.argmin())
        if reduced[entering] >= -_TOLERANCE:
            break
        direction = inverse @ matrix[:, entering]
        positive = direction > _TOLERANCE
        if not positive.any():
            break
        ratios = np.divide(level, direction, out=np.full(size, np.inf), where=positive)
        leaving = int(ratios.argmin())
        pivot_row = inverse[leaving] / direction[leaving]
        inverse -= np.outer(direction, pivot_row)
        inverse[leaving] = pivot_row
        amount = ratios[leaving]
        level = np.maximum(level - amount * direction, 0.0)
        level[leaving] = amount
        basis_costs[leaving] = costs[entering]
    return np.asarray(basis_costs @ inverse, dtype=np.float64)
