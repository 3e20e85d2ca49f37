"""The pool: eviction order, references, and what must always hold."""

from collections import Counter
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from prefixwatch.demo.keys import BlockKey, extend_keys
from prefixwatch.demo.pool import BlockPool, Cleared, Removed, Stored
from prefixwatch.demo.residency import Residency

BLOCK = 2


def keys_of(text: str) -> list[BlockKey]:
    """Return the keys of a prompt of one-letter tokens, two to a block."""
    keys: list[BlockKey] = []
    extend_keys(keys, [ord(letter) for letter in text], block_size=BLOCK)
    return keys


def fill(pool: BlockPool, text: str, now: float = 0.0) -> list[int]:
    """Take and store the blocks of a prompt, as a request does; return them, still held."""
    keys = keys_of(text)
    found = pool.lookup(keys)
    pool.touch(found, now)
    blocks = found + pool.allocate(-(-len(text) // BLOCK) - len(found), now)
    pool.store(blocks[: len(keys)], keys, now, start=len(found))
    return blocks


def release(pool: BlockPool, blocks: list[int]) -> None:
    """Free a request's blocks, its tail first."""
    pool.free(reversed(blocks))


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(blocks=4)
    assert pool.allocate(3, 0.0) == [1, 2, 3]
    with pytest.raises(ValueError, match="1 blocks asked for, 0 free"):
        pool.allocate(1, 0.0)


def test_usage_does_not_see_cached_blocks_that_nobody_holds() -> None:
    pool = BlockPool(blocks=5)
    blocks = fill(pool, "aabb")
    assert pool.usage == pytest.approx(0.5)
    release(pool, blocks)
    assert pool.usage == 0.0
    assert len(pool.lookup(keys_of("aabb"))) == 2


def test_the_least_recently_freed_goes_first_and_of_one_prompt_the_tail() -> None:
    pool = BlockPool(blocks=6)
    release(pool, fill(pool, "aabb"))
    release(pool, fill(pool, "ccdd"))
    pool.allocate(1, 0.0)  # the one block that never was used
    pool.allocate(1, 0.0)
    assert len(pool.lookup(keys_of("aabb"))) == 1
    pool.allocate(1, 0.0)
    assert pool.lookup(keys_of("aabb")) == []
    assert len(pool.lookup(keys_of("ccdd"))) == 2


def test_a_touched_block_leaves_the_queue_and_returns_to_its_tail() -> None:
    pool = BlockPool(blocks=4)
    release(pool, fill(pool, "aa"))
    release(pool, fill(pool, "bb"))
    release(pool, fill(pool, "cc"))
    release(pool, fill(pool, "aa"))
    pool.allocate(2, 0.0)
    assert len(pool.lookup(keys_of("aa"))) == 1
    assert pool.lookup(keys_of("bb")) == pool.lookup(keys_of("cc")) == []


def test_a_block_that_is_not_cached_is_taken_first() -> None:
    pool = BlockPool(blocks=4)
    release(pool, fill(pool, "aab"))
    partly_filled = 2
    assert pool.allocate(1, 0.0) == [partly_filled]


def test_a_later_block_of_a_chain_is_not_found_without_the_earlier() -> None:
    pool = BlockPool(blocks=4)
    blocks = fill(pool, "aabb")
    pool.free(blocks)  # head first: not what a request does
    pool.allocate(2, 0.0)
    assert pool.lookup(keys_of("aabb")) == []


def test_equal_blocks_are_not_deduplicated() -> None:
    pool = BlockPool(blocks=4)
    keys = keys_of("aa")
    for _ in range(2):
        pool.store(pool.allocate(1, 0.0), keys, 0.0, start=0)
    pool.free([1])
    assert pool.lookup(keys) == [1]
    pool.allocate(2, 0.0)
    assert pool.lookup(keys) == [2]
    removed = [event for event in pool.drain_events() if isinstance(event, Removed)]
    assert [event.last for event in removed] == [False]


def test_a_reset_waits_for_the_held_blocks() -> None:
    pool = BlockPool(blocks=4)
    blocks = fill(pool, "aabb")
    assert not pool.reset(1.0)
    release(pool, blocks)
    assert pool.reset(2.0)
    assert pool.lookup(keys_of("aabb")) == []
    assert pool.drain_events()[-1] == Cleared(at=2.0)


def test_without_caching_nothing_is_stored_or_evicted() -> None:
    residency = Residency(sample=1.0, random=Random(0))
    pool = BlockPool(blocks=3, caching=False, residency=residency)
    for _ in range(3):
        release(pool, fill(pool, "aabb"))
    assert pool.lookup(keys_of("aabb")) == []
    assert pool.drain_events() == []
    assert residency.drain() == []


def test_residency_of_a_block_that_was_reused_and_of_one_that_was_not() -> None:
    residency = Residency(sample=1.0, random=Random(0))
    pool = BlockPool(blocks=3, residency=residency)
    release(pool, fill(pool, "aabb", now=0.0))
    for now in (1.0, 4.0):
        release(pool, fill(pool, "aa", now=now))
    pool.allocate(2, 10.0)
    never_touched, touched = residency.drain()
    assert (never_touched.lifetime, never_touched.idle, never_touched.gaps) == (10.0, 10.0, ())
    assert (touched.lifetime, touched.idle, touched.gaps) == (10.0, 6.0, (3.0,))


def test_only_the_last_four_accesses_are_remembered() -> None:
    residency = Residency(sample=1.0, random=Random(0))
    pool = BlockPool(blocks=2, residency=residency)
    for now in (0.0, 1.0, 3.0, 6.0, 10.0, 15.0):
        release(pool, fill(pool, "aa", now=now))
    pool.allocate(1, 20.0)
    assert residency.drain()[0].gaps == (3.0, 4.0, 5.0)


def test_a_partly_filled_block_counts_as_evicted() -> None:
    residency = Residency(sample=1.0, random=Random(0))
    pool = BlockPool(blocks=3, residency=residency)
    release(pool, fill(pool, "a", now=0.0))
    pool.allocate(1, 0.5)
    assert [eviction.lifetime for eviction in residency.drain()] == [0.5]
    assert pool.drain_events() == []


class PoolMachine(RuleBasedStateMachine):
    """Requests come and go; a second book is kept from the cache events alone."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(blocks=9)
        self.requests: list[list[int]] = []
        self.cached: Counter[bytes] = Counter()
        self.seen: set[str] = set()
        self.now = 0.0

    def follow_events(self) -> None:
        """Book what the events say."""
        for event in self.pool.drain_events():
            if isinstance(event, Stored):
                assert event.parent is None or self.cached[event.parent]
                self.cached.update(key.hash for key in event.keys)
            elif isinstance(event, Removed):
                self.cached[event.hash] -= 1
                assert event.last == (self.cached[event.hash] == 0)
            else:
                self.cached.clear()

    @rule(text=st.text(alphabet="ab", min_size=1, max_size=9))
    def admit(self, text: str) -> None:
        """Let a request in, if its blocks are there."""
        self.now += 1.0
        keys = keys_of(text)
        found = self.pool.lookup(keys)
        needed = -(-len(text) // BLOCK) - len(found) + self.pool.idle_among(found)
        if needed > self.pool.free_blocks:
            return
        held = {block for blocks in self.requests for block in blocks}
        blocks = fill(self.pool, text, self.now)
        assert blocks[: len(found)] == found
        assert not held & set(blocks[len(found) :]), "a held block was handed out"
        assert len(set(blocks)) == len(blocks)
        self.requests.append(blocks)
        self.seen.add(text)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """End one request."""
        if self.requests:
            index = data.draw(st.integers(0, len(self.requests) - 1))
            release(self.pool, self.requests.pop(index))

    @rule()
    def reset(self) -> None:
        """Empty the cache, which works exactly when nothing is held."""
        assert self.pool.reset(self.now) == (not self.requests)

    @invariant()
    def blocks_are_conserved(self) -> None:
        """Have each block free or held, and never both."""
        held = {block for blocks in self.requests for block in blocks}
        assert self.pool.free_blocks + len(held) == self.pool.blocks - 1

    @invariant()
    def lookups_agree_with_the_events(self) -> None:
        """Find exactly the longest prefix that is stored and not removed."""
        self.follow_events()
        for text in self.seen:
            keys = keys_of(text)
            expected = 0
            while expected < len(keys) and self.cached[keys[expected].hash] > 0:
                expected += 1
            assert len(self.pool.lookup(keys)) == expected

    @invariant()
    def a_held_chain_stays_cached(self) -> None:
        """Evict nothing that a request holds."""
        held = {block for blocks in self.requests for block in blocks}
        assert self.pool.idle_among(held) == 0


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPool = PoolMachine.TestCase
