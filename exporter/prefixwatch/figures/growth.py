"""What many counters grew by, point by point: exact, and small.

An engine has some 170 counters and a history some hundred points: most of what is kept of an engine is
this. Most increases are whole numbers and not great, so their columns take four bytes a point; the
others' take eight, and a counter that never moved has none.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", bound=np.generic)
Vector = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Growth:
    """Rows of increases, one a point; the places say which counter a column is of.

    `narrow`: columns of whole numbers below 2^32; `wide`: the other columns; `still`: counters without one.
    Every method leaves the rows before the one it fills as they were: who holds this object sees them
    unchanged.
    """

    narrow: NDArray[np.uint32]
    wide: Vector
    narrow_places: Places
    wide_places: Places
    still: Places

    @classmethod
    def empty(cls) -> "Growth":
        """Return no rows of no counters."""
        none = np.zeros(0, dtype=np.intp)
        return cls(np.zeros((0, 0), dtype=np.uint32), np.zeros((0, 0)), none, none, none)

    @property
    def counters(self) -> int:
        """How many counters there are."""
        return len(self.narrow_places) + len(self.wide_places) + len(self.still)

    def filled(self, row: int, amounts: Vector, *, room: int) -> "Growth":
        """Fill `row`, the next one or the last anew, with the increase of each counter; (counters,).

        Returns the rows: these, or wider ones, or longer ones with space for `room` rows.
        """
        rows = self
        if row >= len(rows.narrow):
            rows = replace(rows, narrow=longer(rows.narrow, room), wide=longer(rows.wide, room))
        if len(amounts) > rows.counters:
            rows = replace(rows, still=np.append(rows.still, np.arange(rows.counters, len(amounts))))
        moved = amounts[rows.still] != 0
        if moved.any():
            rows = rows._with_columns(moved)
        whole = amounts[rows.narrow_places]
        narrow = whole.astype(np.int64).astype(np.uint32)
        is_exact = narrow == whole
        if not is_exact.all():
            rows, narrow = rows._widened(~is_exact), narrow[is_exact]
        rows.narrow[row] = narrow
        rows.wide[row] = amounts[rows.wide_places]
        return rows

    def between(self, first: int, last: int) -> Vector:
        """Return what each counter grew by in the rows from first (included) to last (not), (counters,)."""
        amounts = np.zeros(self.counters)
        amounts[self.narrow_places] = self.narrow[first:last].sum(axis=0, dtype=np.float64)
        amounts[self.wide_places] = self.wide[first:last].sum(axis=0)
        return amounts

    def of(self, place: int, first: int, last: int) -> Vector:
        """Return the increases of one counter in the rows from first (included) to last (not)."""
        for places, table in ((self.narrow_places, self.narrow), (self.wide_places, self.wide)):
            columns = np.flatnonzero(places == place)
            if len(columns):
                return table[first:last, columns[0]].astype(np.float64)
        return np.zeros(last - first)

    def merged(self, kept: Places, dropped: Places, into: Places, *, room: int) -> "Growth":
        """Return the rows that are `kept`, with each of the `dropped` ones added to that number `into` of them."""
        narrow, wide = self.narrow[kept].astype(np.uint64), self.wide[kept]
        np.add.at(narrow, into, self.narrow[dropped])
        np.add.at(wide, into, self.wide[dropped])
        rows, is_great = self, np.asarray((narrow >= 2**32).any(axis=0))
        if is_great.any():
            rows = self._widened(is_great)
            narrow, wide = narrow[:, ~is_great], np.concatenate((wide, narrow[:, is_great]), axis=1)
        return replace(rows, narrow=longer(narrow.astype(np.uint32), room), wide=longer(wide, room))

    def _with_columns(self, moved: NDArray[np.bool_]) -> "Growth":
        """Return rows with a narrow column for those of the still counters that `moved`."""
        new = self.still[moved]
        return replace(
            self,
            narrow=np.pad(self.narrow, ((0, 0), (0, len(new)))),
            narrow_places=np.append(self.narrow_places, new),
            still=self.still[~moved],
        )

    def _widened(self, which: NDArray[np.bool_]) -> "Growth":
        """Return rows with those of the narrow columns made wide."""
        return replace(
            self,
            narrow=self.narrow[:, ~which],
            wide=np.concatenate((self.wide, self.narrow[:, which]), axis=1),
            narrow_places=self.narrow_places[~which],
            wide_places=np.append(self.wide_places, self.narrow_places[which]),
        )


def longer(table: NDArray[_Number], rows: int) -> NDArray[_Number]:
    """Return a table of so many rows, the new ones zero."""
    grown = np.zeros((rows, *table.shape[1:]), dtype=table.dtype)
    grown[: len(table)] = table
    return grown
