"""Cache events to figures: what counts as an avoidable miss, and what does not."""

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.eventtrace import recorded_events
from prefixwatch.figures.events import (
    AGAIN,
    JUDGED,
    REMOVED,
    SPARED,
    STORED,
    Cleared,
    EventTally,
    Removed,
    Stored,
    event_figures,
)
from prefixwatch.figures.figure import Absent

TRACES = Path(__file__).parents[1] / "data" / "traces"
HOURS = 3600.0


def store(*hashes, time=0.0, **more):
    return Stored(time=time, hashes=hashes, **more)


def remove(*hashes, time=0.0, **more):
    return Removed(time=time, hashes=hashes, **more)


CLEAR = Cleared(time=0.0)


def tally_of(events, *, pool=1000, bound=10_000):
    tally = EventTally(bound)
    tally.set_pool(pool)
    for event in events:
        tally.observe(event)
    return tally


def figures_of(tally, *, pool=1000, since=float("-inf"), **more):
    return event_figures(
        tally.settle(),
        distinct=tally.distinct_since(since),
        pool_blocks=pool,
        sampling_rate=tally.sampling_rate,
        **more,
    )


@pytest.mark.parametrize(
    ("events", "again"),
    [
        pytest.param([store(1, 2)], 0, id="first time"),
        pytest.param([store(1, 2), remove(1), store(1)], 1, id="stored again after removal"),
        pytest.param([store(1), store(1)], 0, id="two requests at once"),
        pytest.param([store(1), store(1), remove(1), store(1)], 0, id="a copy was left"),
        pytest.param([store(1), store(1), remove(1), remove(1), store(1)], 1, id="both copies were removed"),
        pytest.param([store(1, 2), remove(1), CLEAR, store(1, 2)], 0, id="not after a clear"),
        pytest.param([CLEAR, store(1), remove(1), store(1)], 1, id="a clear before does no harm"),
        pytest.param([store(1), remove(1), store(1, group=1)], 0, id="another group"),
        pytest.param([store(1, group=1), remove(1), store(1, group=1)], 0, id="removed in another group"),
        pytest.param([remove(1), store(1)], 1, id="stored before anyone watched"),
        pytest.param([store(1), remove(1), store(1), remove(1), store(1)], 2, id="again and again"),
        pytest.param([store(1), remove(1), remove(1), store(1), store(1)], 1, id="a store was lost"),
    ],
)
def test_blocks_stored_again(events, again):
    assert tally_of(events).settle()[AGAIN] == again


@pytest.mark.parametrize(
    ("change", "again"),
    [
        pytest.param(lambda tally: tally.restarted(), 0, id="a restart empties the cache"),
        pytest.param(lambda tally: tally.restarted(100.0), 0, id="a restart after the removal"),
        pytest.param(lambda tally: tally.restarted(5.0), 1, id="a restart that was over before"),
        pytest.param(lambda tally: tally.lost(), 1, id="lost events leave what was evicted"),
    ],
)
def test_what_was_removed_before(change, again):
    tally = tally_of([store(1, 2, time=10), remove(1, time=20)])
    change(tally)
    tally.observe(store(1, time=200))
    assert tally.settle()[AGAIN] == again


def test_a_block_whose_removal_was_lost_is_no_longer_taken_for_cached():
    tally = tally_of([store(1)])
    tally.lost()
    for event in (store(1), remove(1), store(1)):
        tally.observe(event)
    assert tally.settle()[AGAIN] == 1


def test_counts_are_those_since_the_last_time():
    tally = tally_of([store(1, 2, 3), remove(1), store(1)])
    first = tally.settle()
    assert (first[STORED], first[REMOVED], first[AGAIN], first[JUDGED]) == (4, 1, 1, 4)
    second = tally.settle()
    assert second.keys() >= {STORED, REMOVED, AGAIN}
    assert not any(second.values())


def test_events_of_the_past_set_the_state_and_count_nothing():
    tally = tally_of([store(1), remove(1)])
    tally.discard()
    tally.observe(store(1))
    added = tally.settle()
    assert (added[STORED], added[REMOVED], added[AGAIN]) == (1, 0, 1)


def test_lifetimes_are_those_of_evicted_blocks():
    events = [store(*range(100), time=0.0)]
    events += [remove(one, time=float(one + 1)) for one in range(100)]
    lifetimes = figures_of(tally_of(events)).counts.block_lifetime_seconds
    assert lifetimes["0.5"] == pytest.approx(50, rel=0.06)
    assert lifetimes["0.9"] == pytest.approx(90, rel=0.06)


def test_a_block_lives_from_its_first_copy_to_its_last():
    events = [store(1, time=0), store(1, time=60), remove(1, time=80), remove(1, time=100)]
    lifetimes = figures_of(tally_of(events)).counts.block_lifetime_seconds
    assert lifetimes["0.99"] == pytest.approx(100, rel=0.06)


def test_the_working_set_counts_each_block_once():
    tally = tally_of([store(1, 2, 3, time=0), remove(1, time=5), store(1, 4, time=10)])
    assert figures_of(tally, pool=2).working_set_ratio == 2.0
    assert tally.distinct_since(10) == 2


def test_without_a_pool_there_is_no_share_of_it():
    tally = EventTally()
    tally.observe(store(1))
    figures = figures_of(tally, pool=None)
    assert isinstance(figures.working_set_ratio, Absent)
    assert isinstance(figures.whatif, Absent)
    assert figures.avoidable_miss_ratio == 0


def test_without_events_all_is_absent():
    figures = event_figures({}, distinct=0, pool_blocks=1, sampling_rate=1.0)
    assert isinstance(figures.counts, Absent)
    assert isinstance(figures.avoidable_miss_ratio, Absent)


def test_without_stores_no_ratio_is_made():
    figures = figures_of(EventTally())
    assert isinstance(figures.avoidable_miss_ratio, Absent)
    assert isinstance(figures.whatif, Absent)
    assert figures.counts.blocks_stored == 0


@pytest.mark.parametrize(
    ("removed", "is_pool_filled", "is_known"),
    [
        pytest.param(0, True, False, id="anything may have been evicted"),
        pytest.param(0, False, True, id="nothing can have been evicted"),
        pytest.param(0, None, False, id="it is not known whether the pool filled"),
        pytest.param(10, True, True, id="the pool was written over under watch"),
    ],
)
def test_the_past_of_an_engine_that_was_met_at_work(removed, is_pool_filled, is_known):
    tally = tally_of([store(*range(20)), *(remove(one) for one in range(removed))], pool=10)
    tally.joined_late()
    why = tally.unknown_past(is_pool_filled=is_pool_filled)
    assert (why is None) is is_known
    assert isinstance(figures_of(tally, pool=10, unknown_past=why).avoidable_miss_ratio, Absent) is not is_known


def place(*blocks, parent=None, name=0, **more):
    """Return a store of blocks given as (tokens, key); their hashes follow from `name`."""
    hashes = [hash((name, position, parent, blocks)) & (2**64 - 1) for position in range(len(blocks))]
    return store(*hashes, parent=parent, contents=[b[0] for b in blocks], keys=[b[1] for b in blocks], **more)


SYSTEM, USER, OTHER = 11, 22, 33


@pytest.mark.parametrize(
    ("events", "ratio"),
    [
        pytest.param([place((SYSTEM, None)), place((SYSTEM, None), name=1)], 0, id="the same key"),
        pytest.param([place((SYSTEM, 1)), place((SYSTEM, 2))], 1 / 2, id="another salt"),
        pytest.param([place((SYSTEM, None)), place((SYSTEM, 2))], 1 / 2, id="a salt and none"),
        pytest.param(
            [place((SYSTEM, 1), (USER, None)), place((SYSTEM, 2), (USER, None))], 2 / 4, id="what follows is split too"
        ),
        pytest.param([place((SYSTEM, 1), (USER, None)), place((SYSTEM, 2), (OTHER, None))], 1 / 4, id="other tokens"),
        pytest.param([place((USER, 1)), place((OTHER, 1), (USER, 1))], 0, id="another place in the prompt"),
        pytest.param([place((SYSTEM, 1)), place((SYSTEM, 2), parent=5)], 0 / 1, id="an unknown place is not judged"),
    ],
)
def test_key_splits(events, ratio):
    assert figures_of(tally_of(events)).key_split_ratio == pytest.approx(ratio)


def test_a_place_follows_from_the_parent():
    first, second = place((SYSTEM, 1)), place((SYSTEM, 2))
    events = [first, place((USER, None), parent=first.hashes[-1]), second]
    events.append(place((USER, None), parent=second.hashes[-1]))
    assert figures_of(tally_of(events)).key_split_ratio == pytest.approx(2 / 4)


def test_without_tokens_key_splits_are_unknown():
    assert isinstance(figures_of(tally_of([store(1)])).key_split_ratio, Absent)


def lru_events(requests, pool):
    """Return the events of an LRU pool under requests for single blocks, and how many were found."""
    cached, events, hits = {}, [], 0
    for time, block in enumerate(requests):
        if block in cached:
            hits += 1
            cached[block] = cached.pop(block)
            continue
        if len(cached) == pool:
            oldest = next(iter(cached))
            del cached[oldest]
            events.append(remove(oldest, time=float(time)))
        cached[block] = None
        events.append(store(block, time=float(time)))
    return events, hits


@given(st.lists(st.integers(0, 30), max_size=300), st.sampled_from([2, 4, 6, 10]))
def test_whatif_is_exact_for_an_lru_pool(requests, pool):
    events, hits = lru_events(requests, pool)
    added = tally_of(events, pool=pool).settle()
    for larger, name in ((1.5, "1.5x"), (2, "2x"), (4, "4x")):
        _, more = lru_events(requests, int(larger * pool))
        assert added[SPARED + name] == more - hits


@given(st.lists(st.integers(0, 30), min_size=1, max_size=300), st.integers(2, 8))
def test_whatif_is_the_ratio_that_the_larger_pool_shows(requests, half):
    pool = 2 * half
    whatif = figures_of(tally_of(lru_events(requests, pool)[0], pool=pool), pool=pool).whatif
    for larger, name in ((1.5, "1.5x"), (2, "2x"), (4, "4x")):
        there = figures_of(tally_of(lru_events(requests, int(larger * pool))[0]))
        assert whatif[name] == pytest.approx(there.avoidable_miss_ratio)


hashes = st.lists(st.integers(0, 12), min_size=1, max_size=6).map(tuple)
events = st.lists(
    st.one_of(
        st.builds(Stored, time=st.floats(0, HOURS), hashes=hashes, group=st.integers(0, 1)),
        st.builds(Removed, time=st.floats(0, HOURS), hashes=hashes, group=st.integers(0, 1)),
        st.builds(Cleared, time=st.floats(0, HOURS)),
    ),
    max_size=60,
)


@given(events, st.integers(1, 50))
def test_any_events_give_ratios_between_0_and_1(events, pool):
    figures = figures_of(tally_of(events, pool=pool), pool=pool)
    for value in (figures.avoidable_miss_ratio, *(figures.whatif.values() if isinstance(figures.whatif, dict) else ())):
        assert isinstance(value, Absent) or 0 <= value <= 1
    if isinstance(figures.whatif, dict):
        assert list(figures.whatif.values()) == sorted(figures.whatif.values(), reverse=True)


@given(events, st.lists(st.integers(0, 60), max_size=4))
def test_increases_over_a_split_add_up_to_the_whole(events, cuts):
    whole = Counter(tally_of(events).settle())
    tally, parts = tally_of(()), Counter()
    for before, after in itertools.pairwise([0, *sorted(cuts), len(events)]):
        for event in events[before:after]:
            tally.observe(event)
        parts.update(tally.settle())
    assert {k: v for k, v in parts.items() if v} == pytest.approx({k: v for k, v in whole.items() if v})


def counted(trace):
    """Count stores, and those after a removal, by hand."""
    held, gone, stores, again = Counter(), set(), 0, 0
    for line in gzip.decompress((TRACES / trace / "kv_events.jsonl.gz").read_bytes()).splitlines():
        row = json.loads(line)
        if row.get("cleared"):
            held, gone = Counter(), set()
        for name in row.get("stored", ()):
            stores, again = stores + 1, again + (name in gone and not held[name])
            held[name] += 1
        for name in row.get("removed", ()):
            held[name] -= 1
            gone.add(name)
    return again / stores


@pytest.mark.parametrize("trace", ["thrash_low_usage", "pressure", "salted"])
def test_a_recorded_trace_gives_what_a_count_by_hand_gives(trace):
    tally = tally_of(event for _, event in recorded_events(TRACES / trace))
    assert figures_of(tally).avoidable_miss_ratio == pytest.approx(counted(trace))


@pytest.mark.parametrize(("trace", "is_split"), [("salted", True), ("thrash_low_usage", False)])
def test_a_recorded_trace_shows_whether_keys_split_it(trace, is_split):
    tally = tally_of(event for _, event in recorded_events(TRACES / trace))
    assert (figures_of(tally).key_split_ratio > 0.5) is is_split
