"""Readings of one engine over time: increases that survive resets, windows and their coverage.

Each counter becomes a running total that only grows: its increases since the watch began, resets
counted. A window is the difference of two totals, so it is exact however the history between them
was thinned. Older points are kept further apart; the highest value of a gauge between two kept
points is kept with the later one.
"""

import bisect
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

POINTS_PER_WINDOW = 60
"""How finely a window's start can be placed: one point per sixtieth of it."""

_NOT_READ = float("-inf")
_KEPT = 8


@dataclass(frozen=True, slots=True)
class _Point:
    time: float
    totals: NDArray[np.float64]
    peaks: tuple[float, ...]
    ledger: NDArray[np.float64]


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
        if self.wanted_seconds is None:
            return 1.0
        return min(1.0, self.seconds / self.wanted_seconds)


class History:
    """Running totals of one engine's counters, thinned with age. Memory is bounded.

    `spans`: the lengths of the windows that will be asked for, in seconds; what is older than the
    longest is dropped. Empty: everything is kept as it came.
    """

    def __init__(self, spans: Collection[float] = ()) -> None:
        self._spans = sorted(spans)
        self._index: dict[str, int] = {}
        self._totals = np.zeros(0)
        self._last: dict[str, float] = {}
        self._last_grown = np.zeros(0)
        self._kept_indexes: dict[tuple[str, ...], NDArray[np.intp]] = {}
        self._gauges: list[str] = []
        self._points: list[_Point] = []
        self._unthinned = 0

    @property
    def start(self) -> float | None:
        """The time of the oldest point; None before the first."""
        return self._points[0].time if self._points else None

    @property
    def end(self) -> float | None:
        """The time of the newest point; None before the first."""
        return self._points[-1].time if self._points else None

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
        for key, value in counters.items():
            last = self._last.get(key)
            if not counts:
                pass
            elif key in born or (restarted and self._points):
                grown[key] = value
            elif last is not None:
                grown[key] = value - last if value >= last else value
            self._last[key] = value
        if restarted:
            for key in self._last.keys() - counters.keys():
                del self._last[key]
        self._store(time, grown, gauges)
        return grown

    def accumulate(self, amounts: Mapping[str, float], ledger: NDArray[np.float64] | None = None) -> None:
        """Add to running totals at the newest point: sums that the engine does not keep itself.

        `ledger`: running sums kept elsewhere, of one length always, to be found again at a window's ends.
        """
        point = self._points[-1]
        totals = self._grow(point.time, amounts)
        self._points[-1] = _Point(point.time, totals, point.peaks, point.ledger if ledger is None else ledger)

    def totals(self, prefix: str) -> dict[str, float]:
        """Return all growth since the watch began of the counters whose names start so, without the start."""
        return {
            key.removeprefix(prefix): float(self._totals[index])
            for key, index in self._index.items()
            if key.startswith(prefix)
        }

    def window(self, seconds: float | None = None, *, end: float | None = None) -> Window | None:
        """Return the window of that length up to `end`: everything seen, up to now, by default.

        Its ends are the readings nearest to the ones asked for. None: fewer than two readings.
        """
        points = self._points
        last = len(points) - 1 if end is None else bisect.bisect_right(points, end, key=lambda p: p.time) - 1
        if last < 1:
            return None
        first = 0 if seconds is None else self._nearest(points[last].time - seconds, last)
        return self._between(first, last, seconds)

    def steps(self, seconds: float, count: int) -> list[Window | None]:
        """Return the last `seconds` as `count` windows in a row, oldest first; None where nothing was read."""
        if not self._points:
            return [None] * count
        points, now = self._points, self._points[-1].time
        edges = [now - seconds * (count - step) / count for step in range(count + 1)]
        marks = [bisect.bisect_right(points, edge, key=lambda p: p.time) - 1 for edge in edges]
        return [
            self._between(first, last, seconds / count) if 0 <= first < last else None
            for first, last in itertools.pairwise(marks)
        ]

    def intervals(self, keys: Sequence[str]) -> NDArray[np.float64]:
        """Return what these counters grew by between neighbouring points, shape (n, keys), oldest first.

        It begins where all of them are known; n is 0 where one never was.
        """
        columns = [self._index.get(key, -1) for key in keys]
        if -1 in columns or len(self._points) < 2:
            return np.empty((0, len(keys)))
        known = [point.totals[columns] for point in self._points if len(point.totals) > max(columns)]
        return np.diff(np.stack(known), axis=0) if known else np.empty((0, len(keys)))

    def _nearest(self, time: float, before: int) -> int:
        at = bisect.bisect_left(self._points, time, 0, before, key=lambda p: p.time)
        if at > 0 and time - self._points[at - 1].time <= self._points[at].time - time:
            at -= 1
        return min(at, before - 1)

    def _between(self, first: int, last: int, wanted: float | None) -> Window:
        start, end = self._points[first], self._points[last]
        grown = end.totals.copy()
        grown[: len(start.totals)] -= start.totals
        is_known = self._last_grown[: len(grown)] > start.time
        increases = dict(zip(itertools.compress(self._index, is_known), grown[is_known].tolist(), strict=True))
        peaks = _highest([point.peaks for point in self._points[first + 1 : last + 1]])
        return Window(
            start=start.time,
            end=end.time,
            increases=increases,
            peaks={name: peak for name, peak in zip(self._gauges, peaks, strict=False) if peak > _NOT_READ},
            wanted_seconds=wanted,
            ledger=(start.ledger, end.ledger),
        )

    def _grow(self, time: float, amounts: Mapping[str, float]) -> NDArray[np.float64]:
        indexes = self._indexes(tuple(amounts))
        totals = self._totals.copy()
        totals[indexes] += np.fromiter(amounts.values(), np.float64, len(amounts))
        self._totals = totals
        self._last_grown[indexes] = time
        return totals

    def _indexes(self, keys: tuple[str, ...]) -> NDArray[np.intp]:
        """Return where these counters stand in the totals; new ones get a place. The last answers are kept."""
        kept = self._kept_indexes.get(keys)
        if kept is not None:
            return kept
        for key in keys:
            self._index.setdefault(key, len(self._index))
        new = len(self._index) - len(self._totals)
        self._totals = np.append(self._totals, np.zeros(new))
        self._last_grown = np.append(self._last_grown, np.full(new, _NOT_READ))
        if len(self._kept_indexes) >= _KEPT:
            self._kept_indexes.clear()
        indexes = self._kept_indexes[keys] = np.array([self._index[key] for key in keys], dtype=np.intp)
        return indexes

    def _store(self, time: float, grown: Mapping[str, float], gauges: Mapping[str, float]) -> None:
        ledger = self._points[-1].ledger if self._points else np.zeros(0)
        self._gauges.extend(name for name in gauges if name not in self._gauges)
        peaks = tuple(gauges.get(name, _NOT_READ) for name in self._gauges)
        self._points.append(_Point(time, self._grow(time, grown), peaks, ledger))
        self._unthinned += 1
        if self._spans and self._unthinned > POINTS_PER_WINDOW // 4:
            self._unthinned = 0
            self._points = _thinned(self._points, self._spans)


def _thinned(points: Sequence[_Point], spans: Sequence[float]) -> list[_Point]:
    """Keep what windows of the lengths `spans` need: points the further apart the older they are.

    One point older than the longest span stays, for its start to be placed. The newest stays.
    """
    now = points[-1].time
    kept: list[_Point] = []
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
            kept.append(_Point(point.time, point.totals, _highest(peaks), point.ledger))
            peaks.clear()
    return kept


def _highest(peaks: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the highest of each column; an older point may have fewer."""
    width = max(map(len, peaks), default=0)
    whole = (row + (_NOT_READ,) * (width - len(row)) if len(row) < width else row for row in peaks)
    return tuple(map(max, zip(*whole, strict=True)))
