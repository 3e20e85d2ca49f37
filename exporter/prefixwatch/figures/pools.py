"""The last pools of one pair of histograms, in as little memory as they need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

_FIRST_ROWS = 8


class Pools:
    """At most `size` pools, numbered in turn from `begin`: their vectors of `width`, and what was counted of them.

    Of the vectors only those columns are stored that were ever occupied, a few of many; rows as they are needed.
    """

    def __init__(self, size: int, width: int, counted: int, begin: int) -> None:
        self._size, self._width = size, width
        self._columns = np.zeros(0, dtype=np.intp)
        self._vectors = np.zeros((0, 0))
        self._counted = np.zeros((0, counted))
        self._is_exact = np.zeros(0, dtype=np.bool_)
        self._begin = self.end = begin

    @property
    def oldest(self) -> int:
        """The number of the first pool that is still kept."""
        return max(self._begin, self.end - self._size)

    def add(self, vector: Array, *, is_exact: bool) -> int:
        """Keep a pool, in place of the oldest one once there are `size` of them; return its number."""
        stored = vector[self._columns]
        if np.count_nonzero(stored) < np.count_nonzero(vector):
            self._widen(vector)
            stored = vector[self._columns]
        place = (self.end - self._begin) % self._size
        if place >= len(self._vectors):
            self._lengthen()
        self._vectors[place] = stored
        self._is_exact[place] = is_exact
        self.end += 1
        return self.end - 1

    def count(self, number: int, counted: Sequence[float]) -> None:
        """Say what was counted of a pool."""
        self._counted[(number - self._begin) % self._size] = counted

    def vectors(self, numbers: Index) -> Array:
        """Return the vectors of these pools, (n, width)."""
        whole = np.zeros((len(numbers), self._width))
        whole[:, self._columns] = self._vectors[self._places(numbers)]
        return whole

    def counted(self, numbers: Index) -> Array:
        """Return what was counted of these pools, (n, counted)."""
        return self._counted[self._places(numbers)]

    def are_exact(self, numbers: Index) -> npt.NDArray[np.bool_]:
        """Whether what was counted of these pools is exact, (n,)."""
        return self._is_exact[self._places(numbers)]

    def _places(self, numbers: Index) -> Index:
        return (numbers - self._begin) % self._size

    def _widen(self, vector: Array) -> None:
        columns = np.union1d(self._columns, np.flatnonzero(vector))
        vectors = np.zeros((len(self._vectors), len(columns)))
        vectors[:, np.searchsorted(columns, self._columns)] = self._vectors
        self._columns, self._vectors = columns, vectors

    def _lengthen(self) -> None:
        filled = len(self._vectors)
        more = min(max(filled, _FIRST_ROWS), self._size - filled)
        self._vectors = np.pad(self._vectors, ((0, more), (0, 0)))
        self._counted = np.pad(self._counted, ((0, more), (0, 0)))
        self._is_exact = np.pad(self._is_exact, (0, more))
