"""The points of a history: when something was read, and what had happened since the point before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prefixwatch.figures.growth import Growth, Vector, longer

NOT_READ = float("-inf")
"""The peak of a gauge that was not read, and the time of a growth that was not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The first `count` rows of tables that may have room for more; a point's row never changes once the next is there.

    `times`: unix seconds, ascending. `known`: how many counters there were. `growth`: what each grew by since the point
    before. `ledgers`: running sums that someone else keeps. `peaks`: highest value of each gauge since the point before.
    """

    count: int
    times: Vector
    known: NDArray[np.int32]
    growth: Growth
    ledgers: Vector
    peaks: Vector

    @classmethod
    def none(cls) -> "Points":
        """Return no points."""
        return cls(
            count=0,
            times=np.zeros(0),
            known=np.zeros(0, dtype=np.int32),
            growth=Growth.empty(),
            ledgers=np.zeros((0, 0)),
            peaks=np.zeros((0, 0)),
        )

    def time(self, place: int) -> float:
        """Return when the point at a place was read."""
        return float(self.times[place])

    def until(self, time: float) -> int:
        """Return the place of the last point that is not after `time`, -1 where there is none."""
        return int(self.times[: self.count].searchsorted(time, side="right")) - 1

    def nearest(self, time: float, before: int) -> int:
        """Return the place of the point nearest to `time` among those before another; of two as near, the older."""
        at = int(self.times[:before].searchsorted(time))
        if at > 0 and time - self.time(at - 1) <= self.time(at) - time:
            at -= 1
        return min(at, before - 1)

    def appended(self, time: float, peaks: Sequence[float], *, room: int) -> "Points":
        """Return these points and a new one, whose counters and ledger are still to be filled in.

        `room`: for so many points there will be space, if there is none now.
        """
        there = self
        if self.count >= len(self.times):
            there = there._with_room(room)
        if len(peaks) > there.peaks.shape[1]:
            more = len(peaks) - there.peaks.shape[1]
            there = replace(there, peaks=np.pad(there.peaks, ((0, 0), (0, more)), constant_values=NOT_READ))
        there.times[self.count] = time
        there.peaks[self.count] = peaks
        if self.count:
            there.ledgers[self.count] = there.ledgers[self.count - 1]
        return replace(there, count=self.count + 1)

    def filled(self, amounts: Vector) -> "Points":
        """Return these points with what the counters grew by up to the newest."""
        self.known[self.count - 1] = len(amounts)
        growth = self.growth.filled(self.count - 1, amounts, room=len(self.times))
        return self if growth is self.growth else replace(self, growth=growth)

    def with_ledger(self, ledger: Vector) -> "Points":
        """Return these points with these running sums at the newest."""
        there = self
        if len(ledger) > self.ledgers.shape[1]:
            more = len(ledger) - self.ledgers.shape[1]
            there = replace(self, ledgers=np.pad(self.ledgers, ((0, 0), (0, more))))
        there.ledgers[self.count - 1] = ledger
        return there

    def thinned(self, spans: Sequence[float], fineness: int, *, room: int) -> "Points":
        """Return what windows of the lengths `spans`, ascending, need: points the further apart the older they are.

        There is one in a `fineness`-th of the shortest span that reaches back to it. One point older than the longest
        span stays, for its start to be placed. The newest stays. `room`: for so many more there will be space.
        """
        kept = np.array(self._needed(spans, fineness))
        is_dropped = np.arange(self.count) > kept[0]
        is_dropped[kept] = False
        dropped = np.flatnonzero(is_dropped)
        into = kept.searchsorted(dropped)
        peaks = self.peaks[kept]
        np.maximum.at(peaks, into, self.peaks[dropped])
        return replace(
            self,
            count=len(kept),
            times=self.times[kept],
            known=self.known[kept],
            growth=self.growth.merged(kept, dropped, into, room=len(kept) + room),
            ledgers=self.ledgers[kept],
            peaks=peaks,
        )._with_room(len(kept) + room)

    def _needed(self, spans: Sequence[float], fineness: int) -> list[int]:
        times = self.times[: self.count]
        reaching = np.searchsorted(spans, times[-1] - times).clip(max=len(spans) - 1)
        apart = (np.asarray(spans)[reaching] / fineness).tolist()
        listed = times.tolist()
        oldest = listed[-1] - spans[-1]
        kept: list[int] = []
        previous = NOT_READ
        for place, following in enumerate(listed[1:]):
            if following >= oldest and following - previous > apart[place]:
                kept.append(place)
                previous = listed[place]
        return [*kept, self.count - 1]

    def _with_room(self, rows: int) -> "Points":
        return replace(
            self,
            times=longer(self.times, rows),
            known=longer(self.known, rows),
            ledgers=longer(self.ledgers, rows),
            peaks=longer(self.peaks, rows),
        )
