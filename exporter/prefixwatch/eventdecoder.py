"""Decode the engine's cache events: msgpack batches of vLLM, whatever the release.

Token ids are users' prompts: they become a keyed digest while a message is decoded, and are never
held, logged or exported. The key is random and dies with the process.
"""

import secrets
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import batched
from typing import Any

import msgspec

from prefixwatch.figures.events import CacheEvent, Cleared, Removed, Stored

_KNOWN = frozenset({"BlockStored", "BlockRemoved", "AllBlocksCleared"})
_POOL_MEDIA = (None, "GPU")
_MASK = (1 << 64) - 1
_DIGEST_BYTES = 8
_NIL = msgspec.Raw(b"\xc0")
_Hash = bytes | int


class MalformedError(Exception):
    """A message that is no batch of cache events. Its text holds nothing of the message."""
