"""Cache events that come faster than they can be read."""

import threading
import time
from pathlib import Path

import msgspec
import zmq

from edge.waiting import until
from prefixwatch.eventstream import EventSource, EventStream
from prefixwatch.figures.events import STORED

BATCHES, BLOCKS = 20_000, 512
MEGABYTES = 60.0
"""Of the 100 MB that are sent: what waits to be read is bounded."""


class Flood:
    """A publisher that sends as fast as it can, and drops what its queue has no room for, as vLLM's does."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, 1000)
        self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.sent = 0

    def wait_for_subscriber(self) -> None:
        assert self._socket.poll(20_000)
        self._socket.recv()

    def send(self, *, at: float) -> None:
        hashes = range(self.sent * BLOCKS, (self.sent + 1) * BLOCKS)
        event = {"type": "BlockStored", "block_hashes": [one << 24 for one in hashes], "parent_block_hash": None}
        self._socket.send_multipart((b"", self.sent.to_bytes(8), msgspec.msgpack.encode([at, [event], 0])))
        self.sent += 1

    def close(self) -> None:
        self._context.destroy(linger=0)


def megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def stored(stream: EventStream) -> float:
    with stream.lock:
        return sum(tally.settle()[STORED] for tally in stream.tallies().values())


async def test_a_flood_is_bounded_in_memory_its_gaps_are_said_and_what_follows_is_counted() -> None:
    flood = Flood()
    source = EventSource(endpoints=(f"tcp://127.0.0.1:{flood.port}",), bound=1000)
    stream = EventStream("engine", source)
    stream.start()
    try:
        flood.wait_for_subscriber()
        before, began = megabytes(), time.time()
        with stream.lock:  # the reader cannot go on: what is taken stays in ZeroMQ's queues
            sender = threading.Thread(target=lambda: [flood.send(at=began) for _ in range(BATCHES)])
            sender.start()
            sender.join()
        await until(lambda: not _is_moving(stream), seconds=60)
        assert megabytes() - before < MEGABYTES

        counted = stored(stream)
        flood.send(at=time.time())
        await until(lambda: stream.status()[0].batches + stream.status()[0].missed == flood.sent)
        (status,) = stream.status()
        assert status.is_connected
        assert status.missed > 0
        assert status.errors["gap"] > 0, "the loss is said"
        assert set(status.errors) <= {"gap", "behind"}
        assert counted + stored(stream) == BLOCKS * status.batches, "and nothing is counted that was not read"
    finally:
        stream.stop()
        flood.close()


def _is_moving(stream: EventStream) -> bool:
    before = stream.status()[0].batches
    time.sleep(0.3)
    return stream.status()[0].batches != before
