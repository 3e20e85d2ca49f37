"""Windows of a history: what counters and gauges did between two readings.

A window is the difference of two running totals, made when it is asked for, in any thread: most
never are.
"""

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NOT_READ = float("-inf")
"""The peak of a gauge that was not read, and the time of a growth that was not seen."""


@dataclass(frozen=True, slots=True)
class Point:
    """A history has some hundred of these. `row`: the ledger, then the totals of the counters that ever moved.

    `known`: how many counters there were, moved or not; `split`: where the totals begin in `row`.
    """

    time: float
    row: NDArray[np.float64]
    split: int
    known: int
    peaks: tuple[float, ...]

    @property
    def ledger(self) -> NDArray[np.float64]:
        """The running sums that someone else keeps."""
        return self.row[: self.split]

    @property
    def totals(self) -> NDArray[np.float64]:
        """The running totals, a counter's in the same place at every point; later points may have more."""
        return self.row[self.split :]


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

    What stands in the first `count` of `points` does not change, though more may follow. `last_grown` (when that was)
    is of the counters `names`; `totals` of those that ever moved, whose places among the names are `places`.
    """

    names: tuple[str, ...]
    last_grown: NDArray[np.float64]
    totals: NDArray[np.float64]
    places: NDArray[np.intp]
    gauges: Sequence[str]
    points: Sequence[Point]
    count: int

    def window(self, seconds: float | None = None, *, end: float | None = None) -> Window | None:
        """Return the window of that length up to `end`: everything seen, up to now, by default.

        Its ends are the readings nearest to the ones asked for. None: fewer than two readings.
        """
        ends = self._ends(seconds, end)
        return self._between(*ends, seconds) if ends else None

    def seconds(self, wanted: float | None = None) -> float | None:
        """Return how much time the window of that length spans; None: there is none. Much faster than the window."""
        ends = self._ends(wanted, None)
        return self.points[ends[1]].time - self.points[ends[0]].time if ends else None

    def coverage(self, wanted: float | None = None) -> float:
        """Return which share of that length the window covers, 0 where there is none."""
        seconds = self.seconds(wanted)
        return 0.0 if seconds is None else _coverage(seconds, wanted)

    def steps(self, seconds: float, count: int) -> list[Window | None]:
        """Return the last `seconds` as `count` windows in a row, oldest first; None where nothing was read."""
        if not self.count:
            return [None] * count
        now = self.points[self.count - 1].time
        edges = [now - seconds * (count - step) / count for step in range(count + 1)]
        marks = [self._until(edge) for edge in edges]
        return [
            self._between(first, last, seconds / count) if 0 <= first < last else None
            for first, last in itertools.pairwise(marks)
        ]

    def sums(self, prefix: str) -> dict[str, float]:
        """Return all growth since the watch began of the counters whose names start so, without the start."""
        totals = np.zeros(len(self.names))
        totals[self.places] = self.totals
        amounts = zip(self.names, totals.tolist(), strict=True)
        return {key.removeprefix(prefix): amount for key, amount in amounts if key.startswith(prefix)}

    def _until(self, time: float) -> int:
        """Return the place of the last point that is not after `time`, -1 where there is none."""
        return bisect.bisect_right(self.points, time, 0, self.count, key=_time) - 1

    def _ends(self, seconds: float | None, end: float | None) -> tuple[int, int] | None:
        last = self.count - 1 if end is None else self._until(end)
        if last < 1:
            return None
        return 0 if seconds is None else self._nearest(self.points[last].time - seconds, last), last

    def _nearest(self, time: float, before: int) -> int:
        at = bisect.bisect_left(self.points, time, 0, before, key=_time)
        if at > 0 and time - self.points[at - 1].time <= self.points[at].time - time:
            at -= 1
        return min(at, before - 1)

    def _between(self, first: int, last: int, wanted: float | None) -> Window:
        start, end = self.points[first], self.points[last]
        earlier, totals = start.totals, end.totals
        moved = totals.copy()
        moved[: len(earlier)] -= earlier
        grown = np.zeros(end.known)
        grown[self.places[: len(moved)]] = moved
        is_known = self.last_grown[: len(grown)] > start.time
        increases = dict(zip(itertools.compress(self.names, is_known), grown[is_known].tolist(), strict=True))
        peaks = highest([point.peaks for point in self.points[first + 1 : last + 1]])
        return Window(
            start=start.time,
            end=end.time,
            increases=increases,
            peaks={name: peak for name, peak in zip(self.gauges, peaks, strict=False) if peak > NOT_READ},
            wanted_seconds=wanted,
            ledger=(start.ledger, end.ledger),
        )


def _time(point: Point) -> float:
    return point.time


def _coverage(seconds: float, wanted: float | None) -> float:
    return 1.0 if wanted is None else min(1.0, seconds / wanted)


def highest(peaks: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the highest of each column; an older point may have fewer."""
    width = max(map(len, peaks), default=0)
    whole = (row + (NOT_READ,) * (width - len(row)) if len(row) < width else row for row in peaks)
    return tuple(map(max, zip(*whole, strict=True)))
