"""The engine's cache events: misses that a larger pool would have avoided.

A block stored again after it was evicted is a miss that more memory would have avoided; one stored
for the first time is none. The events of an engine go into an `EventTally`; what it adds up
between two polls goes into the engine's history, and figures are made of a window's increases.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prefixwatch.figures.figure import Absent
from prefixwatch.figures.keysplits import KeySplits
from prefixwatch.figures.remembered import DEFAULT_BOUND, POOLS, RememberedBlocks

POOL_NAMES = tuple(f"{pool:g}x" for pool in POOLS)
QUANTILES = (0.5, 0.9, 0.99)

STORED, REMOVED, AGAIN = "own/blocks_stored", "own/blocks_removed", "own/blocks_stored_again"
SPLIT, PLACED = "own/blocks_key_split", "own/blocks_placed"
SPARED = "own/blocks_spared/"
JUDGED = "events/judged"
_LIFETIME = "events/lifetime/"
_STEPS_PER_DOUBLING = 8
_SHORTEST = 0.001

_MASK = (1 << 64) - 1
# 2**64 / golden ratio: spreads what little order an integer hash has (Fibonacci hashing).
_SPREAD = 0x9E3779B97F4A7C15
_SPLITS_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Blocks entered the cache, in chain order. `time` in unix seconds, hashes as 64-bit integers.

    `parent`: the hash before the first, None at a prompt's start. `contents`: digests of each
    block's tokens, None where not known; `keys`: digests of each block's own adapter and salt.
    """

    time: float
    hashes: Sequence[int]
    parent: int | None = None
    group: int = 0
    contents: Sequence[int] | None = None
    keys: Sequence[int | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Copies of cached blocks were evicted."""

    time: float
    hashes: Sequence[int]
    group: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The whole cache was emptied."""

    time: float


CacheEvent = Stored | Removed | Cleared


class EventTally:
    """Add up what one engine's events say. The events are those of its own pool, in order.

    `bound`: how many blocks are remembered; beyond it they are sampled by hash, from the
    start on one of 2**`sampling_shift`. `emptied_at`: when
    the cache was last seen to be cleared, unix seconds.
    """

    def __init__(self, bound: int = DEFAULT_BOUND, *, sampling_shift: int = 0) -> None:
        self._blocks = RememberedBlocks(bound, sampling_shift=sampling_shift)
        self._splits = KeySplits(bound // _SPLITS_SHARE)
        self._stored = self._removed = self._unjudged = 0
        self._sampled = self._again = 0.0
        self._zones = [0.0] * (len(POOLS) + 1)
        self._weighted: defaultdict[str, float] = defaultdict(float)
        self._pool: int | None = None
        self._seen_removed = 0
        self._has_past = True
        self.emptied_at: float | None = None

    @property
    def sampling_rate(self) -> float:
        """The share of blocks of which more than the number is known."""
        return self._blocks.rate

    @property
    def remembered(self) -> int:
        """How many blocks are remembered."""
        return len(self._blocks)

    def set_pool(self, blocks: int | None) -> None:
        """State the size of the pool, as the engine's page says it."""
        if blocks:
            self._pool = blocks
            self._blocks.set_pool(blocks)

    def observe(self, event: CacheEvent) -> None:
        """Take one event."""
        self._blocks.make_room()
        match event:
            case Stored():
                self._observe_stored(event)
            case Removed():
                self._observe_removed(event)
            case Cleared():
                self._blocks.forget_contents()
                self._has_past, self.emptied_at = True, event.time

    def joined_late(self) -> None:
        """Take note that the engine had been at work before its first event was seen."""
        self._has_past = False

    def unknown_past(self, *, is_pool_filled: bool | None) -> Absent | None:
        """Return why it cannot be told which blocks had been evicted before; None where it can.

        It can from the start on, while nothing was evicted, or once the whole pool was evicted under watch.
        """
        if self._has_past or is_pool_filled is False or (self._pool and self._seen_removed >= self._pool):
            return None
        return Absent(
            "the watch began after the engine did: what was evicted before is not known until the pool was written over"
        )

    def restarted(self, at: float | None = None) -> None:
        """Take note that the engine began anew, with an empty cache; `at` where the time is known."""
        self._blocks.forget_contents(before=at)
        self._has_past = True

    def lost(self) -> None:
        """Take note that events were lost: which blocks are cached is no longer known."""
        self._blocks.doubt_contents()

    def distinct_since(self, time: float) -> float:
        """Return how many different blocks were stored since then (unix seconds)."""
        return self._blocks.distinct_since(time)

    def settle(self) -> dict[str, float]:
        """Return what was added since the last call, for `History.accumulate`.

        Counts of stores and removals are exact. Of the stores, the sampled ones say which share
        was stored again, and that share is taken of all; without a sampled one they wait for the next.
        """
        amounts = {STORED: float(self._stored), REMOVED: float(self._removed), **dict.fromkeys((AGAIN, JUDGED), 0.0)}
        amounts |= {f"{SPARED}{name}": 0.0 for name in POOL_NAMES} | {SPLIT: 0.0, PLACED: 0.0}
        self._unjudged += self._stored
        if self._sampled:
            weight = self._unjudged / self._sampled
            amounts[JUDGED] = float(self._unjudged)
            amounts[AGAIN] = weight * self._again
            for place, name in enumerate(POOL_NAMES, 1):
                amounts[f"{SPARED}{name}"] = weight * sum(self._zones[:place])
            self._unjudged = 0
        amounts |= self._weighted
        self._stored = self._removed = 0
        self._sampled = self._again = 0.0
        self._zones = [0.0] * (len(POOLS) + 1)
        self._weighted.clear()
        return amounts

    def discard(self) -> None:
        """Drop what was added since the last call of `settle`: events of the past, taken for the state alone."""
        unjudged = self._unjudged
        self.settle()
        self._unjudged = unjudged

    def _observe_stored(self, event: Stored) -> None:
        self._stored += len(event.hashes)
        salt, blocks = _salt(event.group), self._blocks
        names = [(value ^ salt) * _SPREAD & _MASK for value in event.hashes]
        sampled = names if blocks.rate == 1 else [name for name in names if name < blocks.threshold]
        weight = 1 / blocks.rate
        self._sampled += len(sampled) * weight
        for outcome in blocks.store(sampled, event.time):
            if outcome >= 0:
                self._again += weight
                self._zones[outcome] += weight
        if event.contents and len(event.contents) == len(names):
            keys = event.keys or [None] * len(names)
            parent = None if event.parent is None else (event.parent ^ salt) * _SPREAD & _MASK
            judged, split = self._splits.store(names, parent, event.contents, keys, blocks.threshold)
            self._weighted[PLACED] += judged / blocks.rate
            self._weighted[SPLIT] += split / blocks.rate

    def _observe_removed(self, event: Removed) -> None:
        self._removed += len(event.hashes)
        self._seen_removed += len(event.hashes)
        salt, blocks = _salt(event.group), self._blocks
        for value in event.hashes:
            name = (value ^ salt) * _SPREAD & _MASK
            if name >= blocks.threshold:
                continue
            lifetime = blocks.remove(name, event.time)
            if lifetime is not None:
                step = math.floor(math.log2(max(lifetime, _SHORTEST)) * _STEPS_PER_DOUBLING)
                self._weighted[f"{_LIFETIME}{step}"] += 1 / blocks.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounts:
    """How many blocks the events of a window are about, and how long evicted ones were cached.

    `blocks_stored` and `blocks_removed` are exact; the rest is taken from the share of blocks that
    `sampling_rate` states. `block_lifetime_seconds`: by quantile ("0.5").
    """

    blocks_stored: float
    blocks_removed: float
    blocks_stored_again: float
    block_lifetime_seconds: Mapping[str, float] | Absent
    sampling_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFigures:
    """What the events of one engine say over a window, or why they do not.

    Ratios in 0..1, the working set in pools. `whatif`: the avoidable-miss ratio to expect of a
    larger pool, by its name ("2x"). `key_split_ratio`: of the blocks whose place in the prompt is
    known, those whose tokens were stored there before under another adapter or salt.
    """

    avoidable_miss_ratio: float | Absent
    working_set_ratio: float | Absent
    whatif: Mapping[str, float] | Absent
    key_split_ratio: float | Absent
    counts: EventCounts | Absent

    @classmethod
    def absent(cls, why: Absent) -> "EventFigures":
        """Return all of them absent."""
        return cls(avoidable_miss_ratio=why, working_set_ratio=why, whatif=why, key_split_ratio=why, counts=why)


def event_figures(
    increases: Mapping[str, float],
    *,
    distinct: float,
    pool_blocks: int | None,
    sampling_rate: float,
    unknown_past: Absent | None = None,
) -> EventFigures:
    """Derive the figures of a window.

    `distinct`: how many different blocks were stored in it. `unknown_past`: why it cannot be told
    which blocks had been evicted before, if it cannot.
    """
    if STORED not in increases:
        return EventFigures.absent(Absent("no cache events were read in this window"))
    judged, again, placed = (increases.get(name, 0.0) for name in (JUDGED, AGAIN, PLACED))
    no_pool = None if pool_blocks else Absent("the page does not state the number of blocks (num_gpu_blocks)")
    why_not = unknown_past or (None if judged > 0 else Absent("no block was stored"))
    return EventFigures(
        avoidable_miss_ratio=why_not or _share(again, judged),
        working_set_ratio=no_pool or distinct / (pool_blocks or 1),
        whatif=why_not or no_pool or whatif(increases),
        key_split_ratio=_share(increases.get(SPLIT, 0.0), placed)
        if placed > 0
        else Absent("no block was stored of which the events say the tokens and their place"),
        counts=EventCounts(
            blocks_stored=increases[STORED],
            blocks_removed=increases.get(REMOVED, 0.0),
            blocks_stored_again=again,
            block_lifetime_seconds=_quantiles(increases),
            sampling_rate=sampling_rate,
        ),
    )


def whatif(increases: Mapping[str, float]) -> dict[str, float]:
    """Return the avoidable-miss ratio to expect of each larger pool, by its name.

    What the larger pool would have kept is neither stored nor a miss there, so it leaves both
    halves of the ratio.
    """
    judged, again = increases.get(JUDGED, 0.0), increases.get(AGAIN, 0.0)
    spared = {name: increases.get(f"{SPARED}{name}", 0.0) for name in POOL_NAMES}
    return {name: _share(max(0.0, again - kept), judged - kept) for name, kept in spared.items()}


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def _quantiles(increases: Mapping[str, float]) -> dict[str, float] | Absent:
    """Return quantiles of the lifetimes, within half a step of the histogram's (4 %)."""
    steps = sorted(
        (int(key.removeprefix(_LIFETIME)), count)
        for key, count in increases.items()
        if key.startswith(_LIFETIME) and count > 0
    )
    total = sum(count for _, count in steps)
    if not total:
        return Absent("no block was evicted that had been seen to be stored")
    found: dict[str, float] = {}
    for quantile in QUANTILES:
        seen = 0.0
        for step, count in steps:
            seen += count
            if seen >= quantile * total:
                found[f"{quantile:g}"] = 2.0 ** ((step + 0.5) / _STEPS_PER_DOUBLING)
                break
    return found


def _salt(group: int) -> int:
    """Return what tells one KV cache group's blocks from another's of the same hash."""
    return group * 0xD1B54A32D192ED03 & _MASK
