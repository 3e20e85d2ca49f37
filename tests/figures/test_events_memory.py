"""Remembered blocks: the bound, the sample, the ghosts' order."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.figures.events import AGAIN, STORED, EventTally, Removed, Stored, event_figures
from prefixwatch.figures.ghosts import GhostList

BATCH = 25


class Thrashing:
    """An LRU pool of `pool` blocks and traffic that draws from `hot` prefixes and from new ones."""

    def __init__(self, *, pool, hot, seed=1, new_share=0.3):
        self.random, self.pool, self.hot, self.new_share = random.Random(seed), pool, hot, new_share
        self.cached, self.new, self.names = {}, 10**9, {}

    def request(self, time):
        is_new = self.random.random() < self.new_share
        self.new += is_new
        first = (self.new if is_new else self.random.randrange(self.hot)) * BATCH
        blocks = [self.name(first + position) for position in range(BATCH)]
        missing = [block for block in blocks if block not in self.cached]
        for block in blocks:
            self.cached.pop(block, None)
        evicted = []
        while len(self.cached) + BATCH > self.pool:
            evicted.append(oldest := next(iter(self.cached)))
            del self.cached[oldest]
        self.cached |= dict.fromkeys(reversed(blocks))
        events = [Removed(time=time, hashes=evicted)] if evicted else []
        return [*events, Stored(time=time, hashes=missing)] if missing else events

    def name(self, block):
        return self.names.setdefault(block, self.random.getrandbits(64))


def run(tallies, *, requests, **traffic):
    thrashing = Thrashing(**traffic)
    for time in range(requests):
        for event in thrashing.request(float(time)):
            for tally in tallies:
                tally.observe(event)


def tally_of(bound, pool):
    tally = EventTally(bound)
    tally.set_pool(pool)
    return tally


def test_what_is_remembered_stays_within_the_bound():
    tally = tally_of(1000, 5000)
    thrashing = Thrashing(pool=5000, hot=400)
    for time in range(1500):
        for event in thrashing.request(float(time)):
            tally.observe(event)
            assert tally.remembered <= 1000 + 2 * BATCH
    assert tally.sampling_rate < 1
    assert (1 / tally.sampling_rate).is_integer()


def test_a_pool_within_the_bound_is_not_sampled_however_much_passes_through_it():
    tally = tally_of(1000, 50)
    run([tally], requests=3000, pool=50, hot=6, new_share=0.5)
    assert tally.sampling_rate == 1


def test_a_sample_gives_the_ratios_of_all_blocks():
    whole, sampled = tally_of(100_000, 5000), tally_of(6_000, 5000)
    run([whole, sampled], requests=5000, pool=5000, hot=350)
    assert sampled.sampling_rate < 0.3
    first, second = (
        event_figures(t.settle(), distinct=t.distinct_since(4000), pool_blocks=5000, sampling_rate=t.sampling_rate)
        for t in (whole, sampled)
    )
    assert second.avoidable_miss_ratio == pytest.approx(first.avoidable_miss_ratio, abs=0.05)
    assert second.working_set_ratio == pytest.approx(first.working_set_ratio, rel=0.1)
    for pool, value in first.whatif.items():
        assert second.whatif[pool] == pytest.approx(value, abs=0.06)
    assert second.counts.blocks_stored == first.counts.blocks_stored


def test_counters_of_a_sample_never_pass_the_stores():
    tally = tally_of(1000, 5000)
    thrashing, stored, again = Thrashing(pool=5000, hot=400), 0.0, 0.0
    for time in range(2000):
        for event in thrashing.request(float(time)):
            tally.observe(event)
        added = tally.settle()
        stored, again = stored + added[STORED], again + added[AGAIN]
        assert added[AGAIN] >= 0
        assert again <= stored


@given(
    st.lists(st.tuples(st.sampled_from(["push", "remove", "resize"]), st.integers(0, 14)), max_size=80),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
)
def test_ghosts_lie_in_the_zone_of_their_place_in_the_order(steps, capacities):
    ghosts, model = GhostList(capacities), []

    def zone(place):
        for number, capacity in enumerate(capacities):
            if place < capacity:
                return number
            place -= capacity
        return len(capacities)

    for what, slot in steps:
        if what == "push" and slot not in model:
            ghosts.push(slot)
            model.insert(0, slot)
        elif what == "remove" and slot in model:
            assert ghosts.remove(slot) == zone(model.index(slot))
            model.remove(slot)
        elif what == "resize":
            capacities = [*capacities[1:], slot % 5]
            ghosts.resize(capacities)
        assert ghosts.newest_first() == model
        assert [ghosts.zone_of(one) for one in model] == [zone(place) for place in range(len(model))]
        assert ghosts.oldest() == (model[-1] if model else None)
        assert len(ghosts) == len(model)
