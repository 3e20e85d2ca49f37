"""Chained block keys: what makes two blocks the same block."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

_ROOT = b"root"


class BlockKey(NamedTuple):
    """Name one full block by its whole prefix.

    ``hash`` covers the parent's hash, the tokens and the extra keys; ``content`` is a digest of
    the tokens alone and ``extra`` one of the extra keys (None without any), so that equal
    content under different keys can be told.
    """

    hash: bytes
    content: bytes
    extra: bytes | None


def extend_keys(
    keys: list[BlockKey],
    tokens: Sequence[int],
    *,
    block_size: int,
    salt: str | None = None,
    adapter: str | None = None,
) -> None:
    """Append the keys of those full blocks of ``tokens`` that ``keys`` does not hold yet.

    As in vLLM's generate_block_hash_extra_keys, an adapter is in the key of every block and a
    salt only in that of the first: the chain carries it on.
    """
    for start in range(len(keys) * block_size, len(tokens) - block_size + 1, block_size):
        parent = keys[-1].hash if keys else _ROOT
        names = [f"adapter={adapter}"] if adapter else []
        if salt and start == 0:
            names.append(f"salt={salt}")
        extra = "\0".join(names).encode() if names else b""
        raw = array("I", tokens[start : start + block_size]).tobytes()
        keys.append(
            BlockKey(
                blake2b(parent + raw + extra, digest_size=16).digest(),
                blake2b(raw, digest_size=4).digest(),
                blake2b(extra, digest_size=4).digest() if extra else None,
            )
        )
