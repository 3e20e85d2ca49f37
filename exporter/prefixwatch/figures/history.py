"""Readings of one engine over time: increases that survive resets, windows and their coverage.

Of each counter is kept what it grew by from point to point, resets counted: a window is a sum of
these, so it is exact however the history was thinned. Older points are kept further apart; the
highest value of a gauge between two kept points is kept with the later one.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from prefixwatch.figures.growth import Places, Vector
from prefixwatch.figures.points import NOT_READ, Points
from prefixwatch.figures.windows import Past, Window

POINTS_PER_WINDOW = 60
"""How finely a window's start can be placed: one point per sixtieth of it."""

_BETWEEN_THINNINGS = POINTS_PER_WINDOW // 4

Names = tuple[str, ...]


class History:
    """What one engine's counters grew by, thinned with age. Memory is bounded.

    `spans`: the lengths of the windows that will be asked for, in seconds; what is older than the
    longest is dropped. Empty: everything is kept as it came.
    """

    def __init__(self, spans: Collection[float] = ()) -> None:
        self._spans = sorted(spans)
        self._names: Names = ()
        self._last: Mapping[str, float] = {}
        self._last_names: Names = ()
        self._last_values = np.zeros(0)
        self._last_grown = np.zeros(0)
        self._totals = np.zeros(0)
        self._newest = np.zeros(0)
        self._is_filled = True
        self._gauges: list[str] = []
        self._points = Points.none()
        self._unthinned = 0

    @property
    def start(self) -> float | None:
        """The time of the oldest point; None before the first."""
        return self._points.time(0) if self._points.count else None

    @property
    def end(self) -> float | None:
        """The time of the newest point; None before the first."""
        return self._points.time(self._points.count - 1) if self._points.count else None

    @property
    def names(self) -> int:
        """How many counters there ever were: what a point takes."""
        return len(self._names)

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
        if self.end is not None and time <= self.end:
            raise ValueError(f"time went from {self.end:.3f} to {time:.3f}")
        names = tuple(counters)
        values = np.fromiter(counters.values(), np.float64, len(names))
        if not counts:
            grown = {}
        elif restarted and self._points.count:
            grown = dict(counters)
        elif names == self._last_names and not born:  # as at nearly every poll
            last = self._last_values
            grown = dict(zip(names, np.where(values < last, values, values - last).tolist(), strict=True))
        else:
            grown = self._grown_of(counters, born)
        self._remember(names, values, counters, forgets=restarted)
        self._append(time, grown, gauges)
        return grown

    def accumulate(self, amounts: Mapping[str, float], ledger: Vector | None = None) -> None:
        """Add to running totals at the newest point: sums that the engine does not keep itself.

        `ledger`: running sums kept elsewhere, of one length always, to be found again at a window's ends.
        """
        self._grow(self._points.time(self._points.count - 1), amounts)
        if ledger is not None:
            self._points = self._points.with_ledger(ledger)

    def past(self) -> Past:
        """Return the history as it is now. What is added later changes nothing in it."""
        self._fill()
        return Past(
            names=self._names,
            last_grown=self._last_grown,
            totals=self._totals,
            gauges=self._gauges,
            points=self._points,
        )

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
        self._fill()
        points = self._points
        if not all(key in self._names for key in keys):
            return np.empty((0, len(keys)))
        places = [self._names.index(key) for key in keys]
        first = int(points.known[: points.count].searchsorted(max(places), side="right")) + 1
        return np.stack([points.growth.of(place, min(first, points.count), points.count) for place in places], axis=1)

    def _grown_of(self, counters: Mapping[str, float], born: Collection[str]) -> dict[str, float]:
        grown = {}
        for key, value in counters.items():
            last = self._last.get(key)
            if key in born:
                grown[key] = value
            elif last is not None:
                grown[key] = value - last if value >= last else value
        return grown

    def _remember(self, names: Names, values: Vector, counters: Mapping[str, float], *, forgets: bool) -> None:
        """Keep the values for the next reading, and those of counters that are gone; `forgets`: not these."""
        is_as_before = names == self._last_names
        gone = () if is_as_before or forgets else self._last.keys() - counters.keys()
        if gone:
            counters = {**{key: self._last[key] for key in gone}, **counters}
            names = tuple(counters)
            values = np.fromiter(counters.values(), np.float64, len(names))
        self._last, self._last_names, self._last_values = counters, names, values

    def _append(self, time: float, grown: Mapping[str, float], gauges: Mapping[str, float]) -> None:
        self._fill()
        if self._spans and self._unthinned >= _BETWEEN_THINNINGS:
            self._unthinned = 0
            self._points = self._points.thinned(self._spans, POINTS_PER_WINDOW, room=_BETWEEN_THINNINGS)
        self._unthinned += 1
        self._gauges.extend([name for name in gauges if name not in self._gauges])
        peaks = [gauges.get(name, NOT_READ) for name in self._gauges]
        count = self._points.count
        self._points = self._points.appended(
            time, peaks, room=count + (_BETWEEN_THINNINGS if self._spans else max(count, _BETWEEN_THINNINGS))
        )
        # A past holds the arrays as they were.
        self._totals, self._last_grown = self._totals.copy(), self._last_grown.copy()
        self._newest = np.zeros(len(self._names))
        self._grow(time, grown)

    def _grow(self, time: float, amounts: Mapping[str, float]) -> None:
        """Add to the newest point."""
        self._names, places = _placed(self._names, tuple(amounts))
        if new := len(self._names) - len(self._totals):
            self._newest, self._totals = np.pad(self._newest, (0, new)), np.pad(self._totals, (0, new))
            self._last_grown = np.pad(self._last_grown, (0, new), constant_values=NOT_READ)
        values = np.fromiter(amounts.values(), np.float64, len(amounts))
        self._newest[places] += values
        self._totals[places] += values
        self._last_grown[places] = time
        self._is_filled = False

    def _fill(self) -> None:
        """Give the newest point what the counters grew by."""
        if not self._is_filled:
            self._points = self._points.filled(self._newest)
            self._is_filled = True


# Engines with the same counters, as most of a fleet have, share the answers.
@lru_cache(maxsize=1024)
def _placed(names: Names, keys: Names) -> tuple[Names, Places]:
    """Return the names with those keys behind them that were not there, and where each key stands among them."""
    places = {name: place for place, name in enumerate(dict.fromkeys(names + keys))}
    return names if len(places) == len(names) else tuple(places), np.array([places[key] for key in keys], dtype=np.intp)
