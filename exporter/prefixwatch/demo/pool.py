"""The KV block pool: reference counts, the free queue in eviction order, and the prefix cache."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prefixwatch.demo.keys import BlockKey
from prefixwatch.demo.residency import Residency


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Full blocks entered the cache, in chain order, after ``parent`` (None: the first block)."""

    at: float
    keys: tuple[BlockKey, ...]
    parent: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A cached block was handed out again and its hash dropped.

    ``last`` says whether no other block held the same hash any more.
    """

    at: float
    hash: bytes
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The whole cache was reset."""

    at: float


CacheEvent = Stored | Removed | Cleared


class BlockPool:
    """Hand out blocks and find cached ones, as vLLM 0.32's BlockPool does.

    Block 0 is never handed out (the null block). Free blocks queue in eviction order: allocation
    takes the head; a freed block that is cached goes to the tail, one that is not goes to the
    head, since nothing can be lost with it. Two blocks may hold the same hash: blocks are not
    deduplicated.
    """

    def __init__(self, *, blocks: int, caching: bool = True, residency: Residency | None = None) -> None:
        self.blocks = blocks
        self.caching = caching
        self._residency = residency
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks))
        self._references = [0] * blocks
        self._key_of: dict[int, BlockKey] = {}
        self._cached: dict[bytes, dict[int, None]] = {}
        self._events: list[CacheEvent] = []

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds, cached or not."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that requests hold; cached blocks that nobody holds are not in it."""
        return 1.0 - len(self._free) / (self.blocks - 1)

    def lookup(self, keys: Sequence[BlockKey]) -> list[int]:
        """Return the blocks of the longest cached prefix of ``keys``; takes no reference."""
        found: list[int] = []
        for key in keys:
            holders = self._cached.get(key.hash)
            if not holders:
                break
            found.append(next(iter(holders)))
        return found

    def idle_among(self, blocks: Iterable[int]) -> int:
        """Count those of ``blocks`` that no request holds: touching them takes them off the queue."""
        return sum(not self._references[block] for block in blocks)

    def touch(self, blocks: Iterable[int], now: float) -> None:
        """Take a reference on cached blocks, and idle ones out of the free queue."""
        for block in blocks:
            if not self._references[block]:
                del self._free[block]
            self._references[block] += 1
            if self._residency:
                self._residency.accessed(block, now)

    def allocate(self, count: int, now: float) -> list[int]:
        """Take ``count`` blocks from the head of the queue, evicting what they cached.

        Raises ValueError when so many are not free: callers ask ``free_blocks`` first.
        """
        if count > len(self._free):
            raise ValueError(f"{count} blocks asked for, {len(self._free)} free")
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            if self.caching:
                self._evict(block, now)
            self._references[block] = 1
            if self._residency:
                self._residency.allocated(block, now)
        return taken

    def store(self, blocks: Sequence[int], keys: Sequence[BlockKey], now: float, *, start: int) -> None:
        """Enter blocks ``start`` to the end, now full, into the cache under their keys.

        ``blocks`` and ``keys`` cover a request's blocks from its first on.
        """
        if not self.caching or start >= len(blocks):
            return
        for block, key in zip(blocks[start:], keys[start:], strict=True):
            self._key_of[block] = key
            self._cached.setdefault(key.hash, {})[block] = None
        parent = keys[start - 1].hash if start else None
        self._events.append(Stored(at=now, keys=tuple(keys[start:]), parent=parent))

    def free(self, blocks: Iterable[int]) -> None:
        """Give references back; the first of ``blocks`` will be evicted first.

        A request gives its blocks in reverse, so that the tail of a prompt goes first.
        """
        uncached: list[int] = []
        for block in blocks:
            self._references[block] -= 1
            if self._references[block]:
                continue
            if block in self._key_of:
                self._free[block] = None
            else:
                uncached.append(block)
        for block in reversed(uncached):
            self._free[block] = None
            self._free.move_to_end(block, last=False)

    def reset(self, now: float) -> bool:
        """Empty the cache; False, and nothing done, while any block is held."""
        if len(self._free) != self.blocks - 1:
            return False
        self._key_of.clear()
        self._cached.clear()
        if self._residency:
            self._residency.reset()
        self._events.append(Cleared(at=now))
        return True

    def drain_events(self) -> list[CacheEvent]:
        """Return the cache events since the last call, in order."""
        drained, self._events = self._events, []
        return drained

    def _evict(self, block: int, now: float) -> None:
        if self._residency:
            self._residency.evicted(block, now)
        key = self._key_of.pop(block, None)
        if key is None:
            return
        holders = self._cached[key.hash]
        del holders[block]
        if not holders:
            del self._cached[key.hash]
        self._events.append(Removed(at=now, hash=key.hash, last=not holders))
