"""Publish the stand-in's cache events as vLLM does, over ZeroMQ. Needs the extra `prefixwatch[events]`."""

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from prefixwatch.demo.pool import CacheEvent, Removed, Stored

_encode = msgspec.msgpack.encode


class Publisher:
    """Publish on one free port of 127.0.0.1 an engine; `publish` is a stand-in's `on_event`.

    In the place of tokens, which the stand-in does not keep, stands the digest that it has of them.
    """

    def __init__(self, *, engines: int, block_size: int, unix: Callable[[float], float] = lambda now: now) -> None:
        zmq = importlib.import_module("zmq")
        self._context = zmq.Context()
        self._sockets = [self._context.socket(zmq.PUB) for _ in range(engines)]
        self.ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in self._sockets]
        self._numbers = [0] * engines
        self._block_size = block_size
        self._unix = unix

    @property
    def endpoints(self) -> list[str]:
        """Where to subscribe, one endpoint an engine."""
        return [f"tcp://127.0.0.1:{port}" for port in self.ports]

    def publish(self, engine: int, event: CacheEvent) -> None:
        """Send one event. Never waits: without a subscriber it is gone."""
        batch = [self._unix(event.at), [self._as_map(event)], engine]
        number = self._numbers[engine].to_bytes(8, "big")
        self._numbers[engine] += 1
        self._sockets[engine].send_multipart((b"", number, _encode(batch)))

    def restart(self) -> None:
        """Begin the sequences anew, as a restarted engine does."""
        self._numbers = [0] * len(self._numbers)

    def close(self) -> None:
        """Close the sockets."""
        self._context.destroy(linger=0)

    def _as_map(self, event: CacheEvent) -> dict[str, Any]:
        if isinstance(event, Stored):
            padding = [0] * (self._block_size - 1)
            return {
                "type": "BlockStored",
                "block_hashes": [key.hash for key in event.keys],
                "parent_block_hash": event.parent,
                "token_ids": [token for key in event.keys for token in (int.from_bytes(key.content), *padding)],
                "block_size": self._block_size,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
                "extra_keys": [[key.extra.hex()] if key.extra else None for key in event.keys],
                "group_idx": 0,
            }
        if isinstance(event, Removed):
            return {"type": "BlockRemoved", "block_hashes": [event.hash], "medium": "GPU", "group_idx": 0}
        return {"type": "AllBlocksCleared"}
