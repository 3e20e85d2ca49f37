"""What the two histograms of a poll interval allow: rigorous bounds for request counts and for the sum of hit ratios.

A pool says how many requests fell into each prompt bucket and each computed bucket, and both sums; it does not say
which prompt went with which computed value. The least that any pairing allows for a figure g(prompt, computed), added
up over requests, is a linear program over distributions on the cells (prompt bucket, computed bucket). Its dual is
what this module uses: any numbers with

    a[row] + b[column] + x * prompt + y * computed <= g(prompt, computed)    everywhere in every possible cell

give a lower bound, sum(a * prompt counts) + sum(b * computed counts) + x * prompt sum + y * computed sum, and they give
it for every pool, not only for the one they were found for. So such a *cut* is searched once, made valid in closed
form whatever the search found, kept, and costs one dot product a pool. Upper bounds are lower bounds of -g.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prefixwatch.figures.joint.simplex import dual_values

Array = npt.NDArray[np.float64]
Point = tuple[float, float]

FIGURES = 4  # hit ratio, mostly cached, fully cached, cold: the order of every last axis of length 4
SIDES = 2 * FIGURES  # the four lower bounds, then the four upper ones
LEAST_GAIN = 1e-6  # requests; a bound that is tighter by less is not worth a search or a cut
_ROUNDING = 1e-12  # of a dot product, next to its greatest terms
_FADING = 0.98  # of a cut's use, a pool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Whole numbers that a histogram's buckets (lower, upper] can hold: floats of shape (len(edges) + 1,).

    The first bucket begins at 0: a request may have computed nothing (loaded whole from another instance). The last
    one has no upper edge; `limit` closes it.
    """

    low: Array
    high: Array

    @classmethod
    def of(cls, edges: Sequence[float], *, limit: float) -> Buckets:
        """Take the finite upper edges, which need not be whole; `limit` is the greatest number there can be."""
        inner = np.floor(np.asarray(edges, dtype=np.float64))
        return cls(low=np.concatenate(([0.0], inner + 1)), high=np.concatenate((inner, [limit])))


class Cells:
    """The possible (prompt, computed) pairs of every cell, as corner points, and each figure's value there.

    A cell is a rectangle below the line computed = prompt. It falls into pieces in which the three counted figures are
    constant: the cold line itself, and the rest split at computed = prompt / 2 and at computed = block. A linear
    function has its least value over a piece at a corner, so corners are all that validity needs; the hit ratio is
    curved and needs `_curved` beside.
    """

    def __init__(
        self,
        prompt_edges: tuple[float, ...],
        computed_edges: tuple[float, ...],
        *,
        limit: float,
        block: int | None,
        grain: int,
    ) -> None:
        prompt, computed = Buckets.of(prompt_edges, limit=limit), Buckets.of(computed_edges, limit=limit)
        self.edges = (prompt_edges, computed_edges)
        self.limit = limit
        self.buckets = (prompt, computed)
        self.shape = (len(prompt.low), len(computed.low))
        boxes: list[tuple[float, ...]] = []
        rows: list[int] = []
        columns: list[int] = []
        points: list[Point] = []
        values: list[tuple[float, float, float, float]] = []
        for i, j in np.ndindex(*self.shape):
            box = tuple(float(x) for x in (prompt.low[i], prompt.high[i], computed.low[j], computed.high[j]))
            if box[0] > box[1] or box[2] > box[3] or box[2] > box[1]:
                continue
            boxes.append((i, j, *box))
            for point, value in _corners(*box, block=block, grain=grain):
                rows.append(i)
                columns.append(j)
                points.append(point)
                values.append(value)
        self.rows = np.array(rows, dtype=np.intp)
        self.columns = np.array(columns, dtype=np.intp)
        self.points = np.array(points, dtype=np.float64).reshape(-1, 2)
        gains = np.array(values, dtype=np.float64).reshape(-1, FIGURES)
        self.costs = np.concatenate((gains, -gains), axis=1)  # (points, SIDES): what each side minimises
        cell = self.rows * self.shape[1] + self.columns
        self._starts = np.flatnonzero(np.diff(cell, prepend=-1))
        self._cells = cell[self._starts]
        self._boxes = np.array(boxes, dtype=np.float64).reshape(-1, 6)
        self._grain = float(grain)

    def slack(self, side: int, x: float, y: float) -> Array:
        """Return for each cell the least of cost - x * prompt - y * computed in it; shape `shape`, inf: impossible."""
        least = np.full(self.shape[0] * self.shape[1], np.inf)
        linear = self.costs[:, side] - self.points @ np.array((x, y))
        if len(self._starts):
            least[self._cells] = np.minimum.reduceat(linear, self._starts)
            if side % FIGURES == 0:
                cells = (self._boxes[:, 0] * self.shape[1] + self._boxes[:, 1]).astype(np.intp)
                least[cells] = np.minimum(least[cells], self._curved(side, x, y))
        return least.reshape(self.shape)

    def _curved(self, side: int, x: float, y: float) -> Array:
        """Return the least of the hit ratio's slack where it is not at a corner; inf where it is.

        1 - computed / prompt is linear in computed, so extremes lie on the edges of a cell. Along computed = c it is
        concave in the prompt, so only its greatest value, at prompt = sqrt(c / x), can lie between corners; along
        computed = prompt - grain it is convex, so only its least can, at prompt = sqrt(grain / -(x + y)).
        """
        _, _, low, high, below, above = self._boxes.T
        grain = self._grain
        if side == 0:
            slope = -(x + y)
            if slope <= 0:
                return np.full(len(low), np.inf)
            first = np.maximum(low, below + grain)
            last = np.minimum(high, above + grain)
            p = np.clip(math.sqrt(grain / slope), first, np.maximum(first, last))
            value = grain / p - x * p - y * (p - grain)
            return np.where(first <= last, value, np.inf)
        slope = -x
        if slope <= 0:
            return np.full(len(low), np.inf)
        best = np.full(len(low), np.inf)
        for c in (below, above):
            first = np.maximum(low, c + grain)
            p = np.clip(np.sqrt(c / slope), first, np.maximum(first, high))
            value = -(1 - c / p) - x * p - y * c
            best = np.minimum(best, np.where(first <= high, value, np.inf))
        return best


def _corners(
    low: float, high: float, below: float, above: float, *, block: int | None, grain: int
) -> list[tuple[Point, tuple[float, float, float, float]]]:
    """Return the corner points of a cell's pieces with the four figures' values there."""
    corners: list[tuple[Point, tuple[float, float, float, float]]] = []
    if max(low, below) <= min(high, above):
        corners += [((t, t), (0.0, 0.0, 0.0, 1.0)) for t in {max(low, below), min(high, above)}]
    rectangle = [(low, below), (high, below), (high, above), (low, above)]
    warm = _clip(rectangle, -1.0, 1.0, -float(grain))
    for mostly, half in ((1.0, (-1.0, 2.0, 0.0)), (0.0, (1.0, -2.0, -1.0))):
        part = _clip(warm, *half)
        pieces = [(0.0, part)]
        if block is not None:
            pieces = [(1.0, _clip(part, 0.0, 1.0, block)), (0.0, _clip(part, 0.0, -1.0, -(block + 1.0)))]
        for full, piece in pieces:
            corners += [((p, c), (1 - c / p, mostly, full, 0.0)) for p, c in piece]
    return corners


def _clip(polygon: list[Point], a: float, b: float, bound: float) -> list[Point]:
    """Return the part of a convex polygon where a * x + b * y <= bound (Sutherland and Hodgman)."""
    kept: list[Point] = []
    for k, (x, y) in enumerate(polygon):
        before_x, before_y = polygon[k - 1]
        here, before = a * x + b * y - bound, a * before_x + b * before_y - bound
        if (here > 0) != (before > 0):
            t = before / (before - here)
            kept.append((before_x + t * (x - before_x), before_y + t * (y - before_y)))
        if here <= 0:
            kept.append((x, y))
    return list(dict.fromkeys(kept))


class Cuts:
    """Valid cuts for the eight sides, found on the pools seen; at most `capacity` a side, the least useful replaced.

    A pool is a vector: prompt counts, computed counts, prompt sum, computed sum. `bounds` holds for any pool; `learn`
    only makes it tighter. Beside the cuts hold the least and the most that any requests have: nothing, and all of them.
    """

    def __init__(self, cells: Cells, *, capacity: int) -> None:
        self._cells = cells
        self._capacity = capacity
        self._table = np.zeros((0, sum(cells.shape) + 2))
        self._sides: list[int] = []  # of each cut
        self._use: list[float] = []
        self._greatest = np.zeros(self._table.shape[1])

    def bounds(self, pools: Array) -> Array:
        """Return bounds of the figures' sums for pools of shape (n, width): shape (n, SIDES), lower then upper."""
        values = pools @ self._table.T - _ROUNDING * (pools @ self._greatest)[:, None]
        best = np.zeros((len(pools), SIDES))
        best[:, FIGURES:] = -pools[:, : self._cells.shape[0]].sum(axis=1)[:, None]
        for side, value in zip(self._sides, values.T, strict=True):
            best[:, side] = np.maximum(best[:, side], value)
        best[:, FIGURES:] *= -1
        return best

    def bounds_of(self, pool: Array, requests: float) -> list[float]:
        """Return the bounds of one pool of as many requests, and note which cuts they come from."""
        values = (self._table @ pool).tolist()
        rounding = _ROUNDING * float(self._greatest @ pool)
        best = [0.0] * FIGURES + [-requests] * FIGURES
        used: dict[int, int] = {}
        for place, (side, value) in enumerate(zip(self._sides, values, strict=True)):
            if value - rounding > best[side]:
                best[side] = value - rounding
                used[side] = place
        self._use = [use * _FADING for use in self._use]
        for place in used.values():
            self._use[place] += 1
        return best[:FIGURES] + [-value for value in best[FIGURES:]]

    def learn(self, pool: Array, side: int) -> None:
        """Add the cut that is best for this pool and side, unless it gains nothing."""
        cells = self._cells
        rows, columns = cells.shape
        scale = max(pool[-2] / max(pool[:rows].sum(), 1.0), 1.0)
        some_rows, some_columns = np.flatnonzero(pool[:rows]), np.flatnonzero(pool[rows : rows + columns])
        chosen = np.flatnonzero((pool[cells.rows] > 0) & (pool[rows + cells.columns] > 0))
        if not len(chosen):
            return
        matrix = np.zeros((len(some_rows) + len(some_columns) + 2, len(chosen)))
        position = np.arange(len(chosen))
        matrix[np.searchsorted(some_rows, cells.rows[chosen]), position] = 1
        matrix[len(some_rows) + np.searchsorted(some_columns, cells.columns[chosen]), position] = 1
        matrix[-2:] = cells.points[chosen].T / scale
        target = np.concatenate((pool[some_rows], pool[rows + some_columns], pool[-2:] / scale))
        dual = dual_values(matrix, target, cells.costs[chosen, side])
        x, y = dual[-2:] / scale
        cut = self._valid(side, float(x), float(y), some_rows, dual[: len(some_rows)])
        known = (self._table[self._places(side)] @ pool).max(initial=0.0 if side < FIGURES else -pool[:rows].sum())
        if cut @ pool > known + LEAST_GAIN:
            self._keep(side, cut)

    def _places(self, side: int) -> list[int]:
        return [place for place, of in enumerate(self._sides) if of == side]

    def _valid(self, side: int, x: float, y: float, rows: npt.NDArray[np.intp], row_values: Array) -> Array:
        """Return the cut with these slopes that holds in every cell, as near as can be to the searched one."""
        slack = self._cells.slack(side, x, y)
        column_values = (slack[rows] - row_values[:, None]).min(axis=0)
        column_values = np.where(np.isfinite(column_values), column_values, 0.0)
        values = (slack - column_values).min(axis=1)
        values = np.where(np.isfinite(values), values, 0.0)
        return np.concatenate((values, column_values, (x, y)))

    def _keep(self, side: int, cut: Array) -> None:
        if not np.isfinite(cut).all():
            return
        places = self._places(side)
        if len(places) < self._capacity:
            self._table = np.vstack((self._table, cut))
            self._sides.append(side)
            self._use.append(1.0)
        else:
            place = min(places, key=self._use.__getitem__)
            self._table[place] = cut
            self._use[place] = 1.0
        self._greatest = np.maximum(self._greatest, np.abs(cut))
