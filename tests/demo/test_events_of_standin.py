"""Cache events of the stand-in: the what-if against a larger pool, and the path over ZeroMQ."""

import dataclasses
import threading
from collections import Counter

import pytest

from edge.waiting import until
from prefixwatch.demo.pool import Cleared as PoolCleared
from prefixwatch.demo.pool import Removed as PoolRemoved
from prefixwatch.demo.pool import Stored as PoolStored
from prefixwatch.demo.publisher import Publisher
from prefixwatch.demo.scenarios import SCENARIOS
from prefixwatch.demo.standin import StandIn
from prefixwatch.eventstream import EventSource, EventStream
from prefixwatch.figures.events import AGAIN, STORED, Cleared, EventTally, Removed, Stored, event_figures

SECONDS = 60.0


def tally_of(scenario, *, blocks, seed):
    """Return the tally of an engine that ran a scenario's traffic with a pool of `blocks`."""
    tally = EventTally()
    tally.set_pool(blocks)

    def take(_engine, event):
        match event:
            case PoolStored():
                tally.observe(Stored(time=event.at, hashes=[int.from_bytes(key.hash[:8]) for key in event.keys]))
            case PoolRemoved():
                tally.observe(Removed(time=event.at, hashes=[int.from_bytes(event.hash[:8])]))
            case PoolCleared():
                tally.observe(Cleared(time=event.at))

    # Where requests queue, a larger pool lets more of them run: that is no longer the same traffic.
    unqueued = {"rate": 8.0, "clients": 10} if scenario == "pressure" else {}
    traffic = dataclasses.replace(SCENARIOS[scenario], blocks=blocks, **unqueued)
    standin = StandIn(traffic, seed=seed, on_event=take, half_time=1e9)
    standin.start()
    standin.advance(SECONDS)
    return tally


def figures_of(tally, blocks):
    return event_figures(tally.settle(), distinct=0, pool_blocks=blocks, sampling_rate=1.0)


@pytest.mark.parametrize(
    ("scenario", "seed", "within"),
    [
        pytest.param("thrash_low_usage", 2, 0.01, id="thrashing"),
        pytest.param("thrash_low_usage", 4, 0.01, id="thrashing, other sizes"),
        pytest.param("pressure", 3, 0.03, id="many at once, whose order changes with the pool"),
    ],
)
def test_whatif_is_what_the_larger_pool_shows(scenario, seed, within):
    blocks = SCENARIOS[scenario].blocks
    whatif = figures_of(tally_of(scenario, blocks=blocks, seed=seed), blocks).whatif
    for larger, name in ((1.5, "1.5x"), (2, "2x"), (4, "4x")):
        there = int(larger * blocks)
        truth = figures_of(tally_of(scenario, blocks=there, seed=seed), there).avoidable_miss_ratio
        assert whatif[name] == pytest.approx(truth, abs=within), name


async def test_a_published_standin_is_read_as_it_is():
    scenario, counted = SCENARIOS["salted"], []
    publisher = Publisher(engines=1, block_size=scenario.config("0.32.0").block_size)
    stream = EventStream("demo", EventSource(endpoints=tuple(publisher.endpoints)))
    stream.start()
    try:
        # A subscriber is connected before it is subscribed: say something until it hears.
        await until(lambda: publisher.publish(0, PoolCleared(at=0.0)) or stream.status()[0].batches)

        def take(engine, event):
            counted.append(len(event.keys) if isinstance(event, PoolStored) else 0)
            publisher.publish(engine, event)

        standin = StandIn(scenario, seed=1, on_event=take)
        standin.start()
        standin.advance(5.0)
        added = Counter()

        def is_all_read():
            with stream.lock:
                added.update(stream.tallies()["0"].settle())
            return added[STORED] >= sum(counted) > 0

        await until(is_all_read)
        figures = event_figures(added, distinct=0, pool_blocks=scenario.blocks, sampling_rate=1.0)
        assert (added[STORED], added[AGAIN]) == (sum(counted), 0)
        assert figures.key_split_ratio > 0.5
    finally:
        stream.stop()
        publisher.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("events")]
