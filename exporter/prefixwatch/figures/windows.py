"""Windows of a history: what counters and gauges did between two readings.

A window is the difference of two running totals, made when it is asked for, in any thread: most
never are.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from prefixwatch.figures.points import NOT_READ, Points
from prefixwatch.page.reading import Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the counters and gauges of one engine did between `start` and `end` (unix seconds).

    `increases` holds the counters whose growth was known at the end: read at least twice, or seen to
    begin; a counter that is not in it is unknown, not zero. `peaks`: highest value of each gauge that was read after
    `start`. `wanted_seconds` is the length asked for, None for everything seen. `ledger`: running
    sums that someone else keeps, as they stood at both ends.
    """

    start: float
    end: float
    increases: Mapping[str, float]
    peaks: Mapping[str, float]
    wanted_seconds: float | None = None
    ledger: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    @property
    def seconds(self) -> float:
        """Return how much time lies between the first and the last reading of the window."""
        return self.end - self.start

    @property
    def coverage(self) -> float:
        """Return the covered share of the length asked for, at most 1."""
        return _coverage(self.seconds, self.wanted_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A history as it was at one moment: gives its windows at any later time, in any thread.

    `totals` and `last_grown` (when that was) are of the counters `names`: all growth since the watch began.
    """

    names: tuple[str, ...]
    last_grown: NDArray[np.float64]
    totals: NDArray[np.float64]
    gauges: Sequence[str]
    points: Points

    def window(self, seconds: float | None = None, *, end: float | None = None) -> Window | None:
        """Return the window of that length up to `end`: everything seen, up to now, by default.

        Its ends are the readings nearest to the ones asked for. None: fewer than two readings.
        """
        ends = self._ends(seconds, end)
        return self._between(*ends, seconds) if ends else None

    def seconds(self, wanted: float | None = None) -> float | None:
        """Return how much time the window of that length spans; None: there is none. Much faster than the window."""
        ends = self._ends(wanted, None)
        return self.points.time(ends[1]) - self.points.time(ends[0]) if ends else None

    def coverage(self, wanted: float | None = None) -> float:
        """Return which share of that length the window covers, 0 where there is none."""
        seconds = self.seconds(wanted)
        return 0.0 if seconds is None else _coverage(seconds, wanted)

    def steps(self, seconds: float, count: int) -> list[Window | None]:
        """Return the last `seconds` as `count` windows in a row, oldest first; None where nothing was read."""
        if not self.points.count:
            return [None] * count
        now = self.points.time(self.points.count - 1)
        edges = [now - seconds * (count - step) / count for step in range(count + 1)]
        marks = [self.points.until(edge) for edge in edges]
        return [
            self._between(first, last, seconds / count) if 0 <= first < last else None
            for first, last in itertools.pairwise(marks)
        ]

    def sums(self, prefix: str) -> dict[str, float]:
        """Return all growth since the watch began of the counters whose names start so, without the start."""
        totals = self.totals.tolist()
        return {rest: totals[place] for place, rest in _starting(self.names, prefix)}

    def _ends(self, seconds: float | None, end: float | None) -> tuple[int, int] | None:
        last = self.points.count - 1 if end is None else self.points.until(end)
        if last < 1:
            return None
        return 0 if seconds is None else self.points.nearest(self.points.time(last) - seconds, last), last

    def _between(self, first: int, last: int, wanted: float | None) -> Window:
        points, start, known = self.points, self.points.time(first), int(self.points.known[last])
        grown = points.growth.between(first + 1, last + 1)[:known]
        is_known = self.last_grown[:known] > start
        increases = Counted(zip(itertools.compress(self.names, is_known), grown[is_known].tolist(), strict=True))
        peaks = points.peaks[first + 1 : last + 1].max(axis=0).tolist()
        return Window(
            start=start,
            end=points.time(last),
            increases=increases,
            peaks={name: peak for name, peak in zip(self.gauges, peaks, strict=False) if peak > NOT_READ},
            wanted_seconds=wanted,
            ledger=(points.ledgers[first], points.ledgers[last]),
        )


@lru_cache(maxsize=256)
def _starting(names: tuple[str, ...], prefix: str) -> tuple[tuple[int, str], ...]:
    """Return the places of the names that start so, and what follows in them."""
    return tuple((place, name.removeprefix(prefix)) for place, name in enumerate(names) if name.startswith(prefix))


def _coverage(seconds: float, wanted: float | None) -> float:
    return 1.0 if wanted is None else min(1.0, seconds / wanted)
