"""Decode the engine's cache events: vLLM's msgpack batches, whatever the release.

Token ids are users' prompts: they become a keyed digest while a message is decoded, and are never
held, logged or exported; so do salts and adapters. The key is random and dies with the process.
"""

import secrets
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from prefixwatch.figures.events import CacheEvent, Cleared, Removed, Stored

_KNOWN = ("BlockStored", "BlockRemoved", "AllBlocksCleared")
_MASK = (1 << 64) - 1
_NIL = msgspec.Raw(b"\xc0")
_Hash = bytes | int


class MalformedError(Exception):
    """A message that is no batch of cache events. Its text holds nothing of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one scheduler step did. `time` in unix seconds; `rank` None where the release does not say.

    `elsewhere`: events of another tier than the engine's own pool; `unknown`: of types that are
    not known; `malformed`: of known types that could not be read. None of these are in `events`.
    """

    time: float
    rank: int | None
    events: Sequence[CacheEvent]
    elsewhere: int = 0
    unknown: int = 0
    malformed: int = 0


class _Batch(msgspec.Struct, array_like=True):
    time: float
    events: list[msgspec.Raw]
    rank: int | None = None


class _Stored(msgspec.Struct, tag="BlockStored", tag_field="type"):
    block_hashes: list[_Hash]
    parent_block_hash: _Hash | None = None
    token_ids: msgspec.Raw = _NIL
    block_size: int | None = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Any = None
    group_idx: int | None = None
    kv_cache_spec_kind: Any = None
    kv_cache_spec_sliding_window: Any = None
    locality: str | None = None
    ownership: str | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved", tag_field="type"):
    block_hashes: list[_Hash]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared", tag_field="type"):
    pass


_Event = _Stored | _Removed | _Cleared


class _Whole(msgspec.Struct, array_like=True):
    time: float
    events: list[_Event]
    rank: int | None = None


class _Tag(msgspec.Struct):
    type: str


# Older releases send the same fields as an array, the type first.
class _StoredArray(_Stored, array_like=True, tag="BlockStored"):
    pass


class _RemovedArray(_Removed, array_like=True, tag="BlockRemoved"):
    pass


class _ClearedArray(_Cleared, array_like=True, tag="AllBlocksCleared"):
    pass


class _TagArray(_Tag, array_like=True):
    pass


_decode_batch = msgspec.msgpack.Decoder(_Batch).decode
_decode_whole = msgspec.msgpack.Decoder(_Whole).decode
_decode_map = msgspec.msgpack.Decoder(_Event).decode
_decode_array = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray).decode
_decode_tag = msgspec.msgpack.Decoder(_Tag).decode
_decode_array_tag = msgspec.msgpack.Decoder(_TagArray).decode
_decode_tokens = msgspec.msgpack.Decoder(list[int]).decode
_encode = msgspec.msgpack.encode


class EventDecoder:
    """Decode payloads. `key` makes digests comparable within one process, and nowhere else."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(16)

    def decode(self, payload: bytes) -> Batch:
        """Decode a payload; what cannot be used of it is counted. Raises `MalformedError`."""
        time, rank, decoded, unknown, malformed = _decoded(payload)
        events: list[CacheEvent] = []
        elsewhere = 0
        removed: list[int] = []
        group = None
        for event in decoded:
            if isinstance(event, _Cleared):
                removed = []
                events.append(Cleared(time=time))
            elif not _is_of_pool(event):
                elsewhere += 1
            elif isinstance(event, _Removed):
                if group != (event.group_idx or 0) or not removed:
                    removed, group = [], event.group_idx or 0
                    events.append(Removed(time=time, hashes=removed, group=group))
                removed.extend([_integer(value) for value in event.block_hashes])
            elif event.block_hashes:
                removed = []
                events.append(self._stored(event, time))
        return Batch(time=time, rank=rank, events=events, elsewhere=elsewhere, unknown=unknown, malformed=malformed)

    def _stored(self, event: _Stored, time: float) -> Stored:
        parent = event.parent_block_hash
        contents = self._contents(event)
        return Stored(
            time=time,
            hashes=[_integer(value) for value in event.block_hashes],
            parent=None if parent is None else _integer(parent),
            group=event.group_idx or 0,
            contents=contents,
            keys=self._keys(event, contents) if contents is not None else None,
        )

    def _contents(self, event: _Stored) -> list[int] | None:
        """Return a digest of each block's tokens; None where they cannot be told apart by block."""
        try:
            tokens = array("q", _decode_tokens(event.token_ids))
        except (msgspec.DecodeError, OverflowError):
            return None
        count = len(event.block_hashes)
        size, rest = divmod(len(tokens), count)
        # More tokens than blocks: some blocks of the range were masked, and it is not said which.
        if rest or not size or (event.block_size and size != event.block_size):
            return None
        raw = memoryview(tokens).cast("B")
        step = size * tokens.itemsize
        return [self._digest(raw[at : at + step]) for at in range(0, count * step, step)]

    def _keys(self, event: _Stored, contents: list[int]) -> list[int | None] | None:
        """Return a digest of each block's adapter and salt; what else is in its key belongs to its content."""
        extra = event.extra_keys
        if not isinstance(extra, list) or len(extra) != len(contents):
            adapter = event.lora_name or event.lora_id
            return None if adapter is None else [self._digest(_encode(adapter))] * len(contents)
        keys: list[int | None] = []
        for position, block_keys in enumerate(extra):
            own = block_keys if isinstance(block_keys, list) else []
            names = [key for key in own if isinstance(key, str)]
            others = [key for key in own if not isinstance(key, str)]
            if others:  # images and embeddings: other content behind the same tokens
                contents[position] ^= self._digest(_encode(others))
            keys.append(self._digest(_encode(names)) if names else None)
        return keys

    def _digest(self, content: bytes | memoryview) -> int:
        return int.from_bytes(blake2b(content, digest_size=8, key=self._key).digest())


def _decoded(payload: bytes) -> tuple[float, int | None, list[_Event], int, int]:
    """Return (time, rank, events of known types, how many were unknown, how many malformed)."""
    try:
        whole = _decode_whole(payload)
        return whole.time, whole.rank, whole.events, 0, 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        batch = _decode_batch(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedError("not a msgpack array of a time, events and a rank") from None
    events: list[_Event] = []
    unknown = malformed = 0
    for raw in batch.events:
        try:
            event = _event(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            malformed += 1
        else:
            unknown += event is None
            if event is not None:
                events.append(event)
    return batch.time, batch.rank, events, unknown, malformed


def _event(raw: msgspec.Raw) -> _Event | None:
    """Decode one event; None for a type that is not known."""
    first = memoryview(raw)[0]
    is_array = 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)
    try:
        return _decode_array(raw) if is_array else _decode_map(raw)
    except msgspec.ValidationError:
        tag = _decode_array_tag(raw) if is_array else _decode_tag(raw)
        if tag.type not in _KNOWN:
            return None
        raise


def _is_of_pool(event: _Stored | _Removed) -> bool:
    """Say whether an event is of the engine's own pool, not of a tier that blocks are offloaded to."""
    return event.medium in (None, "GPU") and event.ownership is None and event.locality != "REMOTE"


def _integer(value: _Hash) -> int:
    return int.from_bytes(value[:8]) if isinstance(value, bytes) else value & _MASK
