"""How long blocks stay: what ``--kv-cache-metrics`` observes of a sample of them."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

_REMEMBERED_ACCESSES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """One sampled block at its eviction; all in seconds.

    ``gaps`` are the times between the block's last accesses (at most four are remembered);
    the allocation itself is no access, so a block touched once has none.
    """

    lifetime: float
    idle: float
    gaps: tuple[float, ...]


@dataclass(slots=True)
class _Stay:
    born: float
    last: float
    accesses: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_ACCESSES))


class Residency:
    """Sample blocks at allocation and observe them until they are handed out again.

    A block that was never in the cache (a request's last, partly filled one) counts as evicted
    like any other, as in vLLM's KVCacheMetricsCollector.
    """

    def __init__(self, *, sample: float, random: Random) -> None:
        self._sample = sample
        self._random = random
        self._stays: dict[int, _Stay] = {}
        self._evictions: list[Eviction] = []

    def allocated(self, block: int, now: float) -> None:
        """Start observing a block, with the sampling probability."""
        if self._random.random() < self._sample:
            self._stays[block] = _Stay(now, now)

    def accessed(self, block: int, now: float) -> None:
        """Note that a request found the block in the cache."""
        if stay := self._stays.get(block):
            stay.last = now
            stay.accesses.append(now)

    def evicted(self, block: int, now: float) -> None:
        """End a block's stay, if it was in the sample."""
        if stay := self._stays.pop(block, None):
            times = tuple(stay.accesses)
            gaps = tuple(later - earlier for earlier, later in pairwise(times))
            self._evictions.append(Eviction(lifetime=now - stay.born, idle=now - stay.last, gaps=gaps))

    def reset(self) -> None:
        """Forget everything, as a cache reset does."""
        self._stays.clear()
        self._evictions.clear()

    def drain(self) -> list[Eviction]:
        """Return the evictions since the last call."""
        drained, self._evictions = self._evictions, []
        return drained
