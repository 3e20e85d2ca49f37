"""What a larger pool would still hold: evicted blocks in the order in which they were evicted.

Under LRU the blocks that a pool of C evicted, newest first, are the stack of a larger pool from
depth C on: a block stored again while g ghosts are newer would have been found in any pool of
more than C + g blocks (Mattson et al., "Evaluation techniques for storage hierarchies", 1970).
Hits within the pool move no ghost, so it does no harm that the engine does not announce them.
"""

from collections.abc import Sequence

_NONE = -1
_ABSENT = 255


class GhostList:
    """Slots (small integers) in order of eviction, in zones from the newest on.

    `capacities`: how many ghosts each zone holds; what is older than all of them lies in one more,
    which has no end. Every operation takes constant time.
    """

    def __init__(self, capacities: Sequence[int]) -> None:
        self._capacities = list(capacities)
        zones = len(capacities) + 1
        self._first, self._last, self._sizes = [_NONE] * zones, [_NONE] * zones, [0] * zones
        self._newer: list[int] = []
        self._older: list[int] = []
        self._zone = bytearray()

    def __len__(self) -> int:
        return sum(self._sizes)

    def zone_of(self, slot: int) -> int | None:
        """Return the zone in which a slot lies, 0 for the newest; None where it is no ghost."""
        if slot >= len(self._zone) or self._zone[slot] == _ABSENT:
            return None
        return self._zone[slot]

    def push(self, slot: int) -> None:
        """Add a slot that is no ghost as the newest; of each full zone the oldest moves on to the next."""
        if slot >= len(self._zone):
            more = slot + 1 - len(self._zone)
            self._newer.extend([_NONE] * more)
            self._older.extend([_NONE] * more)
            self._zone.extend([_ABSENT] * more)
        first, last, sizes, newer = self._first, self._last, self._sizes, self._newer
        newest = next((one for one in first if one != _NONE), _NONE)
        newer[slot], self._older[slot] = _NONE, newest
        if newest != _NONE:
            newer[newest] = slot
        entering, zone = slot, 0
        for zone, capacity in enumerate(self._capacities):
            if sizes[zone] < capacity:
                break
            if capacity:
                oldest = last[zone]
                self._zone[entering], first[zone], last[zone] = zone, entering, newer[oldest]
                entering = oldest
        else:
            zone = len(self._capacities)
        self._enter_front(zone, entering)

    def remove(self, slot: int) -> int:
        """Take a ghost out; return the zone in which it lay. What is older moves up by one."""
        zone = self._zone[slot]
        self._leave(zone, slot)
        newer, older = self._newer[slot], self._older[slot]
        if newer != _NONE:
            self._older[newer] = older
        if older != _NONE:
            self._newer[older] = newer
        self._zone[slot] = _ABSENT
        for filled in range(zone, len(self._capacities)):
            if self._sizes[filled] >= self._capacities[filled]:
                continue
            source = next((z for z in range(filled + 1, len(self._sizes)) if self._sizes[z]), None)
            if source is None:
                break
            newest = self._first[source]
            self._leave(source, newest)
            self._enter_back(filled, newest)
        return zone

    def oldest(self) -> int | None:
        """Return the oldest ghost, None without any."""
        return next((last for last in reversed(self._last) if last != _NONE), None)

    def resize(self, capacities: Sequence[int]) -> None:
        """Give the zones other capacities; the order stays."""
        slots = self.newest_first()
        self.clear()
        self._capacities = list(capacities)
        for slot in reversed(slots):
            self.push(slot)

    def newest_first(self) -> list[int]:
        """Return all ghosts, the newest first."""
        slots = []
        slot = next((first for first in self._first if first != _NONE), _NONE)
        while slot != _NONE:
            slots.append(slot)
            slot = self._older[slot]
        return slots

    def clear(self) -> None:
        """Take all ghosts out."""
        for slot in self.newest_first():
            self._zone[slot] = _ABSENT
        zones = len(self._sizes)
        self._first, self._last, self._sizes = [_NONE] * zones, [_NONE] * zones, [0] * zones

    def _enter_front(self, zone: int, slot: int) -> None:
        self._zone[slot] = zone
        self._first[zone] = slot
        if not self._sizes[zone]:
            self._last[zone] = slot
        self._sizes[zone] += 1

    def _enter_back(self, zone: int, slot: int) -> None:
        self._zone[slot] = zone
        self._last[zone] = slot
        if not self._sizes[zone]:
            self._first[zone] = slot
        self._sizes[zone] += 1

    def _leave(self, zone: int, slot: int) -> None:
        """Take the slot off a zone's ends; it keeps its neighbours."""
        self._sizes[zone] -= 1
        if not self._sizes[zone]:
            self._first[zone] = self._last[zone] = _NONE
        elif self._first[zone] == slot:
            self._first[zone] = self._older[slot]
        elif self._last[zone] == slot:
            self._last[zone] = self._newer[slot]
