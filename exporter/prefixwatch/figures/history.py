"""Readings of one engine over time: increases that survive resets, windows and their coverage.

Each counter becomes a running total that only grows: its increases since the watch began, resets
counted. A window is the difference of two totals, so it is exact however the history between them
was thinned. Older points are kept further apart; the highest value of a gauge between two kept
points is kept with the later one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prefixwatch.figures.windows import NOT_READ, Past, Point, Window, highest

POINTS_PER_WINDOW = 60
"""How finely a window's start can be placed: one point per sixtieth of it."""

_KEPT = 8


class History:
    """Running totals of one engine's counters, thinned with age. Memory is bounded.

    `spans`: the lengths of the windows that will be asked for, in seconds; what is older than the
    longest is dropped. Empty: everything is kept as it came.
    """

    def __init__(self, spans: Collection[float] = ()) -> None:
        self._spans = sorted(spans)
        self._index: dict[str, int] = {}
        self._names: tuple[str, ...] = ()
        self._columns: dict[int, int] = {}
        self._places = np.zeros(0, dtype=np.intp)
        self._totals = np.zeros(0)
        self._last: Mapping[str, float] = {}
        self._last_grown = np.zeros(0)
        self._kept_indexes: dict[tuple[str, ...], _Indexes] = {}
        self._gauges: list[str] = []
        self._points: list[Point] = []
        self._unthinned = 0

    @property
    def start(self) -> float | None:
        """The time of the oldest point; None before the first."""
        return self._points[0].time if self._points else None

    @property
    def end(self) -> float | None:
        """The time of the newest point; None before the first."""
        return self._points[-1].time if self._points else None

    @property
    def names(self) -> int:
        """How many counters there ever were: what a point takes."""
        return len(self._index)

    def add(
        self,
        time: float,
        counters: Mapping[str, float],
        gauges: Mapping[str, float],
        *,
        restarted: bool = False,
        born: Collection[str] = (),
        counts: bool = True,
    ) -> dict[str, float]:
        """Add a reading; return the increases since the last one, by counter.

        `restarted`: all counters began anew since the last reading, so their values are growth
        even where they have overtaken the old ones. `born`: counters that began since then.
        `counts` False takes the values as a new baseline and nothing as growth. Raises
        ValueError where time does not move forward.
        """
        if self._points and time <= self._points[-1].time:
            raise ValueError(f"time went from {self._points[-1].time:.3f} to {time:.3f}")
        grown: dict[str, float] = {}
        if not counts:
            pass
        elif restarted and self._points:
            grown.update(counters)
        else:
            lasts = map(self._last.get, counters)
            for (key, value), last in zip(counters.items(), lasts, strict=True):
                if key in born:
                    grown[key] = value
                elif last is not None:
                    grown[key] = value - last if value >= last else value
        gone = () if restarted else self._last.keys() - counters.keys()
        self._last = {**{key: self._last[key] for key in gone}, **counters} if gone else counters
        self._store(time, grown, gauges)
        return grown

    def accumulate(self, amounts: Mapping[str, float], ledger: NDArray[np.float64] | None = None) -> None:
        """Add to running totals at the newest point: sums that the engine does not keep itself.

        `ledger`: running sums kept elsewhere, of one length always, to be found again at a window's ends.
        """
        point = self._points[-1]
        self._grow(point.time, amounts)
        self._points[-1] = self._point(point.time, point.ledger if ledger is None else ledger, point.peaks)

    def past(self) -> Past:
        """Return the history as it is now. What is added later changes nothing in it."""
        return Past(
            names=self._names,
            last_grown=self._last_grown,
            totals=self._totals,
            places=self._places,
            gauges=self._gauges,
            points=self._points,
            count=len(self._points),
        )

    def totals(self, prefix: str) -> dict[str, float]:
        """Return what `Past.sums` says of now."""
        return self.past().sums(prefix)

    def window(self, seconds: float | None = None, *, end: float | None = None) -> Window | None:
        """Return what `Past.window` says of now."""
        return self.past().window(seconds, end=end)

    def steps(self, seconds: float, count: int) -> list[Window | None]:
        """Return what `Past.steps` says of now."""
        return self.past().steps(seconds, count)

    def intervals(self, keys: Sequence[str]) -> NDArray[np.float64]:
        """Return what these counters grew by between neighbouring points, shape (n, keys), oldest first.

        It begins where all of them are known; n is 0 where one never was.
        """
        places = [self._index.get(key, -1) for key in keys]
        if -1 in places or len(self._points) < 2:
            return np.empty((0, len(keys)))
        rows = [point.totals for point in self._points if point.known > max(places)]
        totals = np.zeros((len(rows), len(keys)))
        for number, place in enumerate(places):
            column = self._columns.get(place, len(self._totals))  # what never moved is 0 throughout
            totals[:, number] = [row[column] if column < len(row) else 0.0 for row in rows]
        return np.diff(totals, axis=0) if rows else np.empty((0, len(keys)))

    def _grow(self, time: float, amounts: Mapping[str, float]) -> None:
        known = self._indexes(tuple(amounts))
        values = np.fromiter(amounts.values(), np.float64, len(amounts))
        if values[known.unmoved].any():
            self._give_columns(known.places[known.unmoved[values[known.unmoved] != 0]])
            known = self._indexes(tuple(amounts))
        # A past holds the arrays as they were.
        self._totals = self._totals.copy()
        self._totals[known.columns] += values[known.moved]
        self._last_grown = self._last_grown.copy()
        self._last_grown[known.places] = time

    def _indexes(self, keys: tuple[str, ...]) -> "_Indexes":
        """Return where these counters stand; new ones get a place. The last answers are kept."""
        kept = self._kept_indexes.get(keys)
        if kept is not None:
            return kept
        for key in keys:
            self._index.setdefault(key, len(self._index))
        self._names = tuple(self._index)
        new = len(self._index) - len(self._last_grown)
        self._last_grown = np.append(self._last_grown, np.full(new, NOT_READ))
        if len(self._kept_indexes) >= _KEPT:
            self._kept_indexes.clear()
        places = np.array([self._index[key] for key in keys], dtype=np.intp)
        columns = np.array([self._columns.get(place, -1) for place in places.tolist()], dtype=np.intp)
        moved = np.flatnonzero(columns >= 0)
        indexes = _Indexes(places, moved, columns[moved], np.flatnonzero(columns < 0))
        self._kept_indexes[keys] = indexes
        return indexes

    def _give_columns(self, places: NDArray[np.intp]) -> None:
        """Give counters that move for the first time a column among the totals."""
        for place in places.tolist():
            self._columns[place] = len(self._columns)
        self._places = np.append(self._places, places)
        self._totals = np.append(self._totals, np.zeros(len(places)))
        self._kept_indexes.clear()

    def _point(self, time: float, ledger: NDArray[np.float64], peaks: tuple[float, ...]) -> Point:
        return Point(time, np.concatenate((ledger, self._totals)), len(ledger), len(self._index), peaks)

    def _store(self, time: float, grown: Mapping[str, float], gauges: Mapping[str, float]) -> None:
        ledger = self._points[-1].ledger if self._points else np.zeros(0)
        self._gauges.extend([name for name in gauges if name not in self._gauges])
        peaks = tuple([gauges.get(name, NOT_READ) for name in self._gauges])
        self._grow(time, grown)
        self._points.append(self._point(time, ledger, peaks))
        self._unthinned += 1
        if self._spans and self._unthinned > POINTS_PER_WINDOW // 4:
            self._unthinned = 0
            self._points = _thinned(self._points, self._spans)


@dataclass(frozen=True, slots=True)
class _Indexes:
    """Where some counters stand: `places` among the names; which of them ever `moved`, and their `columns`; which did not."""

    places: NDArray[np.intp]
    moved: NDArray[np.intp]
    columns: NDArray[np.intp]
    unmoved: NDArray[np.intp]


def _thinned(points: Sequence[Point], spans: Sequence[float]) -> list[Point]:
    """Keep what windows of the lengths `spans` need: points the further apart the older they are.

    One point older than the longest span stays, for its start to be placed. The newest stays.
    """
    now = points[-1].time
    kept: list[Point] = []
    peaks: list[tuple[float, ...]] = []
    for position, point in enumerate(points):
        peaks.append(point.peaks)
        following = points[position + 1].time if position + 1 < len(points) else now
        if now - following > spans[-1] and position + 1 < len(points):
            peaks.clear()
            continue
        span = next((span for span in spans if span >= now - point.time), spans[-1])
        previous = kept[-1].time if kept else None
        is_needed = previous is None or following - previous > span / POINTS_PER_WINDOW
        if is_needed or position + 1 == len(points):
            kept.append(replace(point, peaks=highest(peaks)) if len(peaks) > 1 else point)
            peaks.clear()
    return kept
