"""What is remembered of blocks that were stored: a sample of bounded size, by hash.

A block is remembered if its name, a well mixed 64-bit hash, lies below a threshold. Whatever
becomes of a remembered block is seen, so a share of the sample estimates the share of all without
bias. Where more would be remembered than the bound allows, the threshold is halved for good
(Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015).
"""

import itertools
import math
from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from prefixwatch.figures.ghosts import GhostList

POOLS = (1.5, 2.0, 4.0)
"""The larger pools, in multiples of the one that is there: the zones of ghosts end there."""

HORIZON_POOLS = 12.0
"""Evicted blocks are forgotten rather than sampled away only beyond this many pools of others."""

DEFAULT_BOUND = 200_000
FIRST, PRESENT = -1, -2

_SPACE = 1 << 64
_KEPT_SHARE = 0.75
_NEVER = float("-inf")
_NAMELESS = -1
_MANY = 4096


class RememberedBlocks:
    """Blocks by name: how many copies are cached, when they were stored, and ghosts of evicted ones.

    `bound`: how many blocks are remembered at most, from the start on one of 2**`sampling_shift`. Times in unix seconds. A name is an integer in
    [0, 2**64), and only one below `threshold` may be given to `store` and `remove`.
    """

    def __init__(self, bound: int = DEFAULT_BOUND, *, sampling_shift: int = 0) -> None:
        self.threshold = _SPACE >> sampling_shift
        self._bound = bound
        self._pool: int | None = None
        self._slots: dict[int, int] = {}
        self._names: list[int] = []
        self._free: list[int] = []
        self._copies = array("I")
        self._first_stored, self._last_stored, self._touched = array("d"), array("d"), array("d")
        self._ghosts = GhostList(self._capacities())
        self._evicted: dict[int, None] = {}
        self._extra_copies = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def rate(self) -> float:
        """The share of all blocks that is remembered."""
        return self.threshold / _SPACE

    def set_pool(self, blocks: int) -> None:
        """State the size of the pool, without which no larger one can be told."""
        if blocks != self._pool:
            self._pool = blocks
            self._ghosts.resize(self._capacities())

    def store(self, names: Sequence[int], time: float) -> list[int]:
        """Take the blocks of one store; return for each its zone as a ghost, FIRST, or PRESENT where it is cached.

        Zones are those before any of them came back, and before what was evicted to make room for
        them: in a larger pool, that is when they would have been looked up.
        """
        slots = [self._slots.get(name) for name in names]
        outcomes = [FIRST if slot is None else self._standing(slot) for slot in slots]
        for name, known in zip(names, slots, strict=True):
            slot = self._add(name) if known is None else known
            if not self._copies[slot]:
                self._revive(slot)
                self._first_stored[slot] = time
            self._copies[slot] += 1
            self._last_stored[slot] = self._touched[slot] = time
        self._admit_ghosts()
        return outcomes

    def remove(self, name: int, time: float) -> float | None:
        """Take a removal; return how long the block was cached, from its first copy to its last.

        None: copies of it are left, or nothing is known of when it was stored.
        """
        slot = self._slots.get(name)
        if slot is None:
            slot = self._add(name)
        copies = self._copies[slot]
        if copies > 1:
            # In a larger pool the extra copy would still take a place, which nothing ever finds again.
            self._copies[slot] = copies - 1
            self._extra_copies += 1
            slot = self._add(self._extra_copies * _SPACE + name)
        self._touched[slot] = time
        if copies == 0:
            self._revive(slot)
        self._evicted[slot] = None
        if len(self._evicted) >= _MANY:
            self._admit_ghosts()
        if copies != 1:
            return None
        self._copies[slot] = 0
        lifetime = time - self._first_stored[slot]
        return lifetime if lifetime < math.inf else None

    def forget_contents(self, before: float | None = None) -> None:
        """Take note that the cache was emptied: nothing stored or removed until then is a miss later.

        `before`: what was stored or removed from then on stays as it is.
        """
        for slot in self._slots.values():
            if before is None or self._touched[slot] < before:
                self._copies[slot] = 0
                self._first_stored[slot] = _NEVER
                self._revive(slot)

    def doubt_contents(self) -> None:
        """Take note that events were lost: what was cached may have gone. Ghosts stay."""
        for slot in self._slots.values():
            self._copies[slot] = 0
            self._first_stored[slot] = _NEVER

    def distinct_since(self, time: float) -> float:
        """Return how many different blocks were stored at or after a time, an estimate where sampled."""
        return float(np.count_nonzero(np.asarray(self._last_stored) >= time)) / self.rate

    def make_room(self) -> None:
        """Keep to the bound: forget what can be no miss, the oldest ghosts, then half of the sample.

        To be called between events, for it moves the threshold.
        """
        if len(self._slots) < self._bound:
            return
        self._admit_ghosts()
        target = int(self._bound * _KEPT_SHARE)
        self._forget(
            slot for slot in list(self._slots.values()) if not self._copies[slot] and self._ghosts.zone_of(slot) is None
        )
        while True:
            pool = self._pool or max(1, len(self._slots) - len(self._ghosts)) / self.rate
            sampled = pool * self.rate
            self._forget_stale(math.ceil(sampled + 4 * math.sqrt(sampled)))
            horizon = (HORIZON_POOLS - 1) * sampled
            while len(self._slots) > target and len(self._ghosts) > horizon:
                oldest = self._ghosts.oldest()
                assert oldest is not None
                self._forget((oldest,))
            if len(self._slots) <= target:
                return
            self.threshold >>= 1
            self._forget(slot for name, slot in list(self._slots.items()) if name % _SPACE >= self.threshold)
            self._ghosts.resize(self._capacities())

    def _standing(self, slot: int) -> int:
        if self._copies[slot]:
            return PRESENT
        if slot in self._evicted:
            return 0
        zone = self._ghosts.zone_of(slot)
        return FIRST if zone is None else zone

    def _revive(self, slot: int) -> None:
        """Take a block out of the ghosts, if it is one."""
        if slot in self._evicted:
            del self._evicted[slot]
        elif self._ghosts.zone_of(slot) is not None:
            self._ghosts.remove(slot)

    def _admit_ghosts(self) -> None:
        for slot in self._evicted:
            self._ghosts.push(slot)
        self._evicted.clear()

    def _add(self, name: int) -> int:
        if self._free:
            slot = self._free.pop()
            self._names[slot] = name
        else:
            slot = len(self._names)
            self._names.append(name)
            self._copies.append(0)
            for times in (self._first_stored, self._last_stored, self._touched):
                times.append(_NEVER)
        self._slots[name] = slot
        return slot

    def _capacities(self) -> list[int]:
        """Return how many sampled ghosts each zone holds; all fall into the first where no pool is known."""
        if self._pool is None:
            return [1 << 62] * len(POOLS)
        edges = [0, *(round((pool - 1) * self._pool * self.rate) for pool in POOLS)]
        return [after - before for before, after in itertools.pairwise(edges)]

    def _forget_stale(self, most: int) -> None:
        """Forget the oldest of the cached blocks where there are more than the pool can hold: removals were lost."""
        cached = [slot for slot in self._slots.values() if self._copies[slot]]
        if len(cached) > most:
            cached.sort(key=self._touched.__getitem__)
            self._forget(cached[: len(cached) - most])

    def _forget(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._revive(slot)
            del self._slots[self._names[slot]]
            self._names[slot] = _NAMELESS
            self._copies[slot] = 0
            self._first_stored[slot] = self._last_stored[slot] = self._touched[slot] = _NEVER
            self._free.append(slot)
