"""The engine's published events: decoding, order, restarts, and a real ZeroMQ publisher."""

import contextlib
import threading

import msgspec
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from edge.waiting import until
from prefixwatch import eventstream
from prefixwatch.eventchannel import Channel
from prefixwatch.eventdecoder import EventDecoder, MalformedError
from prefixwatch.eventstream import EventsError, EventSource, EventStream, endpoint_at
from prefixwatch.figures.events import AGAIN, REMOVED, STORED, Cleared, EventTally, Removed

encode = msgspec.msgpack.encode
KEY = b"a key"


def stored(*hashes, parent=None, tokens=None, size=2, **more):
    tokens = list(range(size * len(hashes))) if tokens is None else tokens
    return {
        "type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent, "token_ids": tokens,
        "block_size": size, "lora_id": None, "medium": "GPU", "lora_name": None, **more,
    }  # fmt: skip


def removed(*hashes, **more):
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", **more}


def batch(*events, time=100.0, rank=0):
    return encode([time, list(events), rank])


def decoded(*events, **more):
    return EventDecoder(KEY).decode(batch(*events, **more))


BYTES = bytes(range(32))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(removed(7), Removed(time=100.0, hashes=[7]), id="an integer hash"),
        pytest.param(removed(-1), Removed(time=100.0, hashes=[2**64 - 1]), id="a negative one, of older releases"),
        pytest.param(removed(BYTES), Removed(time=100.0, hashes=[int.from_bytes(BYTES[:8])]), id="bytes"),
        pytest.param(removed(7, group_idx=3), Removed(time=100.0, hashes=[7], group=3), id="a group"),
        pytest.param(removed(7, fresh=[{}]), Removed(time=100.0, hashes=[7]), id="an unknown field"),
        pytest.param({"type": "AllBlocksCleared"}, Cleared(time=100.0), id="cleared"),
        pytest.param(["AllBlocksCleared"], Cleared(time=100.0), id="cleared, as an array"),
        pytest.param(["BlockRemoved", [7]], Removed(time=100.0, hashes=[7]), id="removed, as an array"),
        pytest.param(
            ["BlockRemoved", [7], "GPU", 2, "x"], Removed(time=100.0, hashes=[7], group=2), id="a longer array"
        ),
    ],
)
def test_an_event_is_decoded(event, expected):
    assert decoded(event).events == [expected]


def test_a_store_is_decoded_alike_from_a_map_and_an_array():
    whole = stored(7, 8, parent=6, tokens=[1, 2, 3, 4])
    array = ["BlockStored", [7, 8], 6, [1, 2, 3, 4], 2, None]
    assert decoded(whole).events == decoded(array).events
    (event,) = decoded(whole).events
    assert (event.hashes, event.parent, event.group) == ([7, 8], 6, 0)


def test_removals_in_a_row_are_taken_together():
    events = decoded(removed(1), removed(2, 3), removed(4, group_idx=1), stored(5), removed(6)).events
    assert [one.hashes for one in events] == [[1, 2, 3], [4], [5], [6]]


@pytest.mark.parametrize(
    ("event", "counted"),
    [
        pytest.param({"type": "BlockMoved", "block_hashes": [1]}, "unknown", id="an unknown type"),
        pytest.param(["BlockMoved", [1]], "unknown", id="an unknown type, as an array"),
        pytest.param({"type": "BlockRemoved", "block_hashes": "abc"}, "malformed", id="hashes that are none"),
        pytest.param({"block_hashes": [1]}, "malformed", id="no type"),
        pytest.param(5, "malformed", id="no event at all"),
        pytest.param(removed(1) | {"medium": "CPU"}, "elsewhere", id="offloaded to the host"),
        pytest.param(stored(1, medium="STORAGE"), "elsewhere", id="offloaded to storage"),
        pytest.param(removed(1, ownership="tier-2"), "elsewhere", id="of a secondary tier"),
        pytest.param(removed(1, locality="REMOTE"), "elsewhere", id="on another host"),
    ],
)
def test_what_is_not_used_is_counted_and_the_rest_is_taken(event, counted):
    taken = decoded(event, removed(9))
    assert [one.hashes for one in taken.events] == [[9]]
    assert {name: getattr(taken, name) for name in ("unknown", "malformed", "elsewhere")} == {
        "unknown": 0, "malformed": 0, "elsewhere": 0, counted: 1,
    }  # fmt: skip


def contents(event):
    (taken,) = decoded(event).events
    return taken.contents, taken.keys


def test_equal_tokens_have_equal_digests_and_no_token_is_kept():
    (first, second), keys = contents(stored(1, 2, tokens=[70_001, 70_002, 70_001, 70_002]))
    (third,), _ = contents(stored(3, tokens=[70_001, 70_003]))
    assert first == second != third
    assert keys is None
    assert "7000" not in repr(decoded(stored(1, 2, tokens=[70_001, 70_002, 70_001, 70_002])))


def test_digests_of_another_process_cannot_be_compared():
    event = batch(stored(1))
    assert EventDecoder().decode(event).events[0].contents != EventDecoder().decode(event).events[0].contents


@pytest.mark.parametrize(
    ("more", "are_equal", "are_keyed"),
    [
        pytest.param({"extra_keys": [None]}, True, False, id="no key"),
        pytest.param({"extra_keys": [["tenant"]]}, True, True, id="a salt or an adapter"),
        pytest.param({"lora_name": "adapter"}, True, True, id="an adapter, in releases without extra keys"),
        pytest.param({"extra_keys": [[["image", 0]]]}, False, False, id="an image is content"),
        pytest.param({"extra_keys": [["tenant", ["image", 0]]]}, False, True, id="a salt and an image"),
        pytest.param({"extra_keys": ["x", "y"]}, True, False, id="keys of another length"),
    ],
)
def test_keys_are_told_from_content(more, are_equal, are_keyed):
    plain, _ = contents(stored(1))
    with_keys, keys = contents(stored(1, **more))
    assert (with_keys == plain) is are_equal
    assert bool(keys and keys[0] is not None) is are_keyed


@pytest.mark.parametrize("tokens", [[1], [1, 2, 3], [], "text", None, [2**63], [1, 2, 3, 4, 5, 6]])
def test_tokens_that_do_not_fit_the_blocks_give_no_digest(tokens):
    assert contents(stored(1, 2, tokens=tokens) | {"token_ids": tokens}) == (None, None)


@pytest.mark.parametrize("payload", [b"", b"\x93", b"GET / HTTP/1.1", encode({"a": 1}), encode(["x", [], 0])])
def test_a_payload_that_is_no_batch_is_malformed(payload):
    with pytest.raises(MalformedError):
        EventDecoder().decode(payload)


@given(st.binary(max_size=80))
def test_any_bytes_give_a_batch_or_one_named_error(payload):
    with contextlib.suppress(MalformedError):
        EventDecoder().decode(payload)


def frames(number, *events, **more):
    return (b"topic", number.to_bytes(8), batch(*events, **more))


class Publisher:
    """A publisher's memory: what it has sent, from number 0 on."""

    def __init__(self, kept=range(10**6)):
        self.kept, self.sent = kept, []

    def send(self, *events, **more):
        self.sent.append(batch(*events, **more))
        return (b"", (len(self.sent) - 1).to_bytes(8), self.sent[-1])

    def refill(self, first, end):
        for number in range(first, min(end, len(self.sent))):
            if number in self.kept:
                yield number, self.sent[number]


def channel_of(publisher=None, *, now=100.0, tally=None):
    return Channel(
        "tcp://engine:5557", "0", tally or EventTally(), lock=contextlib.nullcontext(), clock=lambda: now,
        refill=publisher.refill if publisher else None,
    )  # fmt: skip


def test_events_in_order_are_counted():
    channel = channel_of()
    for number, event in enumerate([stored(1, 2), removed(1), stored(1)]):
        channel.receive(frames(number, event))
    added, status = channel.tally.settle(), channel.status()
    assert (added[STORED], added[REMOVED], added[AGAIN]) == (3, 1, 1)
    assert (status.batches, status.missed, status.errors, status.is_from_start) == (3, 0, {}, True)


@pytest.mark.parametrize(
    ("kept", "again", "missed", "refilled"),
    [
        pytest.param(range(10), 1, 0, 2, id="all of it comes back"),
        pytest.param(range(2, 10), 0, 1, 1, id="a part comes back"),
        pytest.param(range(0), 0, 2, 0, id="nothing comes back"),
    ],
)
def test_a_gap_is_refilled_as_far_as_it_goes(records, kept, again, missed, refilled):
    publisher = Publisher(kept)
    channel = channel_of(publisher)
    messages = [publisher.send(event) for event in (stored(1), removed(1), stored(2), stored(1))]
    channel.receive(messages[0])
    channel.receive(messages[3])
    status = channel.status()
    assert (status.missed, status.refilled) == (missed, refilled)
    assert status.errors.get("gap", 0) == bool(missed)
    assert channel.tally.settle()[AGAIN] == again
    assert sum("lost" in record.getMessage() for record in records) == bool(missed)


def test_a_gap_without_a_replay_endpoint_is_counted():
    channel = channel_of()
    channel.receive(frames(0, stored(1)))
    channel.receive(frames(5, stored(1)))
    assert channel.status().missed == 4
    assert channel.tally.settle()[AGAIN] == 0


def test_what_was_published_before_the_watch_began_sets_the_state_and_is_not_counted():
    publisher = Publisher()
    publisher.send(stored(1, 2), time=10.0)
    publisher.send(removed(1), time=20.0)
    publisher.send(stored(3), time=110.0)
    channel = channel_of(publisher, now=100.0)
    channel.receive(publisher.send(stored(1), time=120.0))
    added, status = channel.tally.settle(), channel.status()
    assert (added[STORED], added[AGAIN]) == (2, 1)
    assert (status.missed, status.is_from_start) == (0, True)


def test_an_engine_that_was_at_work_before_has_an_unknown_past():
    channel = channel_of()
    channel.receive(frames(7, stored(1)))
    assert not channel.status().is_from_start
    assert channel.tally.unknown_past(is_pool_filled=True) is not None


def test_a_sequence_that_begins_anew_is_a_restart():
    channel = channel_of()
    for number, event in ((0, stored(1)), (1, removed(1)), (0, stored(1))):
        channel.receive(frames(number, event))
    status = channel.status()
    assert (status.restarts, status.missed, status.errors) == (1, 0, {})
    assert channel.tally.settle()[AGAIN] == 0


def test_a_malformed_message_is_counted_told_once_and_the_rest_goes_on(records):
    channel = channel_of()
    channel.receive(frames(0, stored(1)))
    channel.receive((b"", (1).to_bytes(8), b"nonsense: a secret prompt"))
    channel.receive((b"", b"12", b""))
    channel.receive((b"",))
    channel.receive(frames(2, {"type": "BlockRemoved", "block_hashes": 5}, stored(2)))
    channel.receive(frames(3, stored(3)))
    assert channel.status().errors == {"malformed_message": 3, "malformed_event": 1}
    assert channel.tally.settle()[STORED] == 3
    assert len(records) == 2
    assert not any("secret" in str(record.__dict__) for record in records)


def test_a_reader_that_falls_behind_says_so_once(records):
    now = iter([100.0, *(200.0 + step for step in range(10))])
    channel = Channel("", "0", EventTally(), lock=contextlib.nullcontext(), clock=lambda: next(now))
    for number in range(6):
        channel.receive(frames(number, stored(number), time=199.0 + number if not number else 190.0 + number))
    assert channel.status().lag == pytest.approx(9.0)
    assert channel.status().errors == {"behind": 1}
    assert len([record for record in records if "behind" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("text", "host", "expected"),
    [
        pytest.param("tcp://*:5557", "10.0.0.7", "tcp://10.0.0.7:5557", id="the target's host"),
        pytest.param("tcp://*:5557", "::1", "tcp://[::1]:5557", id="an IPv6 host"),
        pytest.param("tcp://engine:5557", "x", "tcp://engine:5557", id="a host of its own"),
        pytest.param("ipc:///run/events", "x", "ipc:///run/events", id="a socket file"),
    ],
)
def test_an_endpoint_is_written_as_vllm_has_it(text, host, expected):
    assert endpoint_at(text, host) == expected


@pytest.mark.parametrize("text", ["localhost:5557", "tcp://*", "tcp://*:0", "tcp://*:99999", "http://x:1", ""])
def test_an_endpoint_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="is not a ZeroMQ endpoint"):
        endpoint_at(text, "host")


def test_without_pyzmq_the_error_names_the_extra(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(eventstream.importlib, "import_module", missing)
    with pytest.raises(EventsError, match=r"prefixwatch\[events\]"):
        EventStream("engine", EventSource(endpoints=("tcp://127.0.0.1:1",)))


def test_replay_endpoints_are_one_a_rank():
    source = EventSource(endpoints=("tcp://a:1", "tcp://a:2"), replay_endpoints=("tcp://a:3",))
    with pytest.raises(EventsError, match="as many"):
        EventStream("engine", source)


class Engine:
    """What vLLM binds: a PUB socket, and a ROUTER that answers from its memory in a thread."""

    def __init__(self, port=None):
        self.context, self.publisher = zmq.Context(), Publisher()
        self.context.setsockopt(zmq.LINGER, 0)
        self.pub = self.context.socket(zmq.XPUB)
        self.port = port or self.pub.bind_to_random_port("tcp://127.0.0.1")
        if port:
            self.pub.bind(f"tcp://127.0.0.1:{port}")
        self.router = self.context.socket(zmq.ROUTER)
        self.replay_port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._answer)
        self.thread.start()

    @property
    def endpoint(self):
        return f"tcp://127.0.0.1:{self.port}"

    def wait_for_subscriber(self):
        assert self.pub.poll(20_000)
        self.pub.recv()

    def publish(self, *events, is_lost=False, **more):
        message = self.publisher.send(*events, **more)
        if not is_lost:
            self.pub.send_multipart(message)

    def _answer(self):
        while not self.is_over.is_set():
            if self.router.poll(20):
                client, _, first = self.router.recv_multipart()
                for number, payload in self.publisher.refill(int.from_bytes(first), 10**9):
                    self.router.send_multipart((client, b"", b"", number.to_bytes(8), payload))
                self.router.send_multipart((client, b"", b"", (-1).to_bytes(8, signed=True), b""))

    def close(self):
        self.is_over.set()
        self.thread.join()
        self.context.destroy(linger=0)


@contextlib.contextmanager
def streaming(*endpoints, **more):
    stream = EventStream("engine", EventSource(endpoints=endpoints, **more))
    stream.start()
    try:
        yield stream
    finally:
        stream.stop()


def added(stream, engine="0"):
    with stream.lock:
        tally = stream.tallies().get(engine)
        return tally.settle() if tally else {}


async def test_a_publisher_is_read_its_gaps_refilled_and_its_restart_seen():
    engine = Engine()
    try:
        with streaming(engine.endpoint, replay_endpoints=(f"tcp://127.0.0.1:{engine.replay_port}",)) as stream:
            engine.wait_for_subscriber()
            engine.publish(stored(1, 2))
            engine.publish(removed(1), is_lost=True)
            engine.publish(stored(1))
            await until(lambda: stream.status()[0].batches == 3)
            first = added(stream)
            assert (first[STORED], first[AGAIN]) == (3, 1)
            assert stream.status()[0].refilled == 1
            engine.close()
            await until(lambda: not stream.status()[0].is_connected)
            engine = Engine(engine.port)
            engine.wait_for_subscriber()
            engine.publish(stored(1))
            await until(lambda: stream.status()[0].batches == 4)
            status = stream.status()[0]
            assert (status.restarts, status.is_connected, status.errors["disconnected"]) == (1, True, 1)
            assert added(stream)[AGAIN] == 0
    finally:
        engine.close()


async def test_each_rank_has_an_endpoint_and_a_tally():
    engines = [Engine(), Engine()]
    try:
        with streaming(*(engine.endpoint for engine in engines)) as stream:
            for rank, engine in enumerate(engines):
                engine.wait_for_subscriber()
                engine.publish(stored(*range(rank + 1)), rank=rank)
            await until(lambda: len(stream.tallies()) == 2)
            assert [added(stream, rank)[STORED] for rank in "01"] == [1, 2]
    finally:
        for engine in engines:
            engine.close()


async def test_two_endpoints_of_one_rank_are_told(records):
    engines = [Engine(), Engine()]
    try:
        with streaming(*(engine.endpoint for engine in engines)) as stream:
            for engine in engines:
                engine.wait_for_subscriber()
                engine.publish(stored(1), rank=0)
            await until(lambda: all(status.batches for status in stream.status()))
            assert list(stream.tallies()) == ["0"]
            assert stream.status()[1].errors["rank_twice"]
    finally:
        for engine in engines:
            engine.close()


async def test_a_dead_endpoint_and_a_wrong_port_leave_the_rest_alone(records):
    good, dead = Engine(), Engine()
    dead.close()
    wrong_kind = f"tcp://127.0.0.1:{good.replay_port}"
    try:
        with streaming(good.endpoint, dead.endpoint, wrong_kind) as stream:
            good.wait_for_subscriber()
            good.publish(stored(1))
            statuses = await until(lambda: stream.status() if all(s.errors for s in stream.status()[1:]) else None)
            await until(lambda: added(stream).get(STORED) == 1)
            assert statuses[1].errors.keys() == {"unreachable"}
            assert statuses[2].errors.keys() == {"not_a_publisher"}
            await until(lambda: stream.status()[1].errors["unreachable"] > 2)
        assert len([record for record in records if record.endpoint == dead.endpoint]) == 1
    finally:
        good.close()


async def test_a_topic_is_subscribed_to():
    engine = Engine()
    try:
        with streaming(engine.endpoint, topic="kv") as stream:
            engine.wait_for_subscriber()
            engine.pub.send_multipart((b"other", (0).to_bytes(8), batch(stored(1, 2))))
            engine.pub.send_multipart((b"kv@pod", (0).to_bytes(8), batch(stored(1))))
            await until(lambda: added(stream).get(STORED) == 1)
    finally:
        engine.close()
