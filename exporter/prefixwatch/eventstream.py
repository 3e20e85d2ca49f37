"""Subscribe to the cache events that the engines of a target publish over ZeroMQ.

One thread a target, one endpoint a data-parallel rank. Needs pyzmq, the extra `prefixwatch[events]`.
"""

import contextlib
import importlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from prefixwatch.addresses import without_credentials
from prefixwatch.eventchannel import Channel, ChannelStatus
from prefixwatch.figures.events import EventTally
from prefixwatch.figures.remembered import DEFAULT_BOUND

_ENDPOINT = re.compile(r"tcp://(\*|\[[0-9a-fA-F:.%]+\]|[^\s:/@\[\]]+):(\d{1,5})|(ipc|inproc)://\S+")
_POLL_MILLISECONDS = 200
_REFUSED_SECONDS = 5.0
_DRAINED_AT_ONCE = 200
_REPLAY_SECONDS = 2.0
_REPLAY_ROUNDS = 32
_MESSAGES_HELD = 2000
_RETRY_MILLISECONDS = (200, 1000)
_HEARTBEAT_MILLISECONDS = (5000, 15000)
_HANDSHAKE_MILLISECONDS = 5000
_END = (-1).to_bytes(8, signed=True)

_log = logging.getLogger(__name__)


class EventsError(Exception):
    """Events that cannot be subscribed to: says what is missing or wrong, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """Where a target's engines publish: one endpoint a data-parallel rank, in their order.

    `replay_endpoints`: none, or as many. `topic`: as vLLM's `topic`, a prefix. `bound`: how many
    blocks are remembered of each engine.
    """

    endpoints: tuple[str, ...]
    replay_endpoints: tuple[str, ...] = ()
    topic: str = ""
    bound: int = DEFAULT_BOUND

    def at(self, host: str) -> "EventSource":
        """Return the source with `host` in the place of "*"."""
        return EventSource(
            endpoints=tuple(endpoint_at(one, host) for one in self.endpoints),
            replay_endpoints=tuple(endpoint_at(one, host) for one in self.replay_endpoints),
            topic=self.topic,
            bound=self.bound,
        )


def endpoint_at(text: str, host: str) -> str:
    """Return an endpoint as vLLM is given it, with the host to reach it at in the place of "*".

    Raises ValueError saying what is wrong.
    """
    match = _ENDPOINT.fullmatch(text)
    if match is None or (match[2] and not 0 < int(match[2]) <= 65535):
        shown = without_credentials(text)
        raise ValueError(
            f'"{shown}" is not a ZeroMQ endpoint; use a form like "tcp://*:5557" or "tcp://localhost:5557"'
        )
    if match[1] != "*":
        return text
    return f"tcp://{f'[{host}]' if ':' in host else host}:{match[2]}"


def require() -> None:
    """Raise `EventsError` where pyzmq is not installed."""
    _pyzmq()


class EventStream:
    """The events of one target's engines, read in a thread of its own from `start` to `stop`.

    Hold `lock` while using what `tallies` returns. Raises `EventsError` where pyzmq is missing or
    an endpoint cannot be used.
    """

    def __init__(self, target: str, source: EventSource, *, clock: Callable[[], float] = time.time) -> None:
        self.lock = threading.Lock()
        self._target = target
        self._source = source
        self._zmq = _pyzmq()
        self._stop = threading.Event()
        replays = source.replay_endpoints or (None,) * len(source.endpoints)
        if len(replays) != len(source.endpoints):
            raise EventsError(f"{target}: give as many replay endpoints as endpoints, one a data-parallel rank")
        self._channels = [
            Channel(
                endpoint, str(rank), EventTally(source.bound), lock=self.lock, clock=clock,
                refill=self._refill_from(replay) if replay else None,
            )
            for rank, (endpoint, replay) in enumerate(zip(source.endpoints, replays, strict=True))
        ]  # fmt: skip
        self._context: Any = None
        self._sockets: dict[str, Any] = {}
        self._refused: dict[str, float] = {}
        self._last_event: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name=f"events {target}", daemon=True)

    def start(self) -> None:
        """Connect, and read until `stop`. An endpoint that nobody listens on yet is tried again and again."""
        self._context = self._zmq.Context()
        self._context.setsockopt(self._zmq.LINGER, 0)
        self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """End the thread, and `wait` until it has. Safe to call twice, and before `start`."""
        self._stop.set()
        if wait and self._thread.is_alive():
            self._thread.join()

    def tallies(self) -> Mapping[str, EventTally]:
        """Return the tally of each engine that has published, by its rank."""
        found: dict[str, EventTally] = {}
        for channel in self._channels:
            if not channel.is_ready:
                continue
            if channel.engine in found:
                channel.fail(
                    "rank_twice", f"engine {channel.engine} publishes on another endpoint too; this one is left out"
                )
                continue
            found[channel.engine] = channel.tally
        return found

    def status(self) -> tuple[ChannelStatus, ...]:
        """Return what is known of each endpoint."""
        return tuple(channel.status() for channel in self._channels)

    def _run(self) -> None:
        poller = self._zmq.Poller()
        readers: dict[Any, Callable[[Any], None]] = {}
        try:
            for channel in self._channels:
                self._connect(channel, readers)
            for socket in readers:
                poller.register(socket, self._zmq.POLLIN)
            while not self._stop.is_set():
                for socket, _ in poller.poll(_POLL_MILLISECONDS):
                    readers[socket](socket)
                self._try_again()
        except Exception:  # noqa: BLE001  the thread ends; the rest of the exporter goes on
            _log.exception("cache events: the reader ended", extra={"target": self._target})
            for channel in self._channels:
                channel.fail("internal", "a fault of the exporter; see its log")
                channel.is_connected = False
        finally:
            self._context.destroy(linger=0)

    def _connect(self, channel: Channel, readers: dict[Any, Callable[[Any], None]]) -> None:
        zmq = self._zmq
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RCVHWM, _MESSAGES_HELD)
        socket.setsockopt(zmq.RECONNECT_IVL, _RETRY_MILLISECONDS[0])
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RETRY_MILLISECONDS[1])
        socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MILLISECONDS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MILLISECONDS[0])
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_MILLISECONDS[1])
        socket.setsockopt(zmq.SUBSCRIBE, self._source.topic.encode())
        readers[socket.get_monitor_socket()] = lambda monitor: self._note(channel, monitor)
        readers[socket] = lambda ready: self._drain(channel, ready)
        self._sockets[channel.endpoint] = socket
        try:
            socket.connect(channel.endpoint)
        except zmq.ZMQError as error:
            channel.fail("unreachable", f"cannot connect: {error.strerror}")

    def _try_again(self) -> None:
        """Connect anew where something else than a publisher answered: ZeroMQ gives up on some of these."""
        now = time.monotonic()
        for endpoint in [one for one, since in self._refused.items() if now - since >= _REFUSED_SECONDS]:
            del self._refused[endpoint]
            with contextlib.suppress(self._zmq.ZMQError):
                self._sockets[endpoint].disconnect(endpoint)
            with contextlib.suppress(self._zmq.ZMQError):
                self._sockets[endpoint].connect(endpoint)

    def _drain(self, channel: Channel, socket: Any) -> None:
        """Take the messages that wait, not so many that another endpoint starves."""
        for _ in range(_DRAINED_AT_ONCE):
            try:
                frames = socket.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            try:
                channel.receive(frames)
            except Exception:  # noqa: BLE001  a fault of ours must not end the reading of other messages
                channel.fail("internal", "a fault of the exporter: a message could not be taken")
                _log.debug("cache events: fault", exc_info=True, extra={"target": self._target})

    def _note(self, channel: Channel, monitor: Any) -> None:
        """Take note of what became of the connection."""
        zmq = self._zmq
        message = importlib.import_module("zmq.utils.monitor").recv_monitor_message(monitor, zmq.NOBLOCK)
        event = message["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            channel.is_connected = True
            channel.recover("unreachable", "not_a_publisher", "disconnected")
        elif event == zmq.EVENT_DISCONNECTED and channel.is_connected:
            channel.is_connected = False
            channel.fail("disconnected", "the publisher has gone; trying again")
        elif event == zmq.EVENT_DISCONNECTED:
            channel.fail("not_a_publisher", "no ZeroMQ publisher answers there: the port of /metrics, or of replays?")
            self._refused[channel.endpoint] = time.monotonic()
        elif event == zmq.EVENT_CONNECT_RETRIED and self._last_event.get(channel.endpoint) != zmq.EVENT_DISCONNECTED:
            channel.fail("unreachable", "nobody listens there; trying again")
        self._last_event[channel.endpoint] = event

    def _refill_from(self, endpoint: str) -> Callable[[int, int], Iterator[tuple[int, bytes]]]:
        """Return what asks a replay endpoint for batches."""

        def refill(first: int, end: int) -> Iterator[tuple[int, bytes]]:
            # A publisher drops what does not fit into its queue: what is missing is asked for again.
            for _ in range(_REPLAY_ROUNDS):
                reached = first
                for number, payload in self._replay(endpoint, first, end):
                    if number != reached and reached > first:
                        break
                    reached = number + 1
                    yield number, payload
                if reached in (first, end):
                    return
                first = reached

        return refill

    def _replay(self, endpoint: str, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Ask once for the batches first..end-1; yield what comes, ascending."""
        socket = self._context.socket(self._zmq.DEALER)
        try:
            socket.setsockopt(self._zmq.IPV6, 1)
            socket.setsockopt(self._zmq.LINGER, 0)
            socket.setsockopt(self._zmq.RCVHWM, _MESSAGES_HELD)
            socket.connect(endpoint)
            socket.send_multipart((b"", first.to_bytes(8)))
            while not self._stop.is_set() and socket.poll(_REPLAY_SECONDS * 1000):
                frames = socket.recv_multipart()
                # An empty frame, the topic (not in all releases), the number, the payload.
                if len(frames) < 3 or frames[-2] == _END or int.from_bytes(frames[-2]) >= end:
                    return
                yield int.from_bytes(frames[-2]), frames[-1]
        finally:
            socket.close()


def _pyzmq() -> ModuleType:
    try:
        return importlib.import_module("zmq")
    except ImportError:
        raise EventsError(
            "cache events need pyzmq, which is not installed: pip install 'prefixwatch[events]'"
        ) from None
