"""Blocks that were computed anew because their key differed, not their tokens.

A block's place is a digest of all tokens of its prompt up to its end; its keys are a digest of
the adapter and the salt in force there. The same place stored under other keys than the last time
is a split: with one key, the cache would have been asked for the same block again.
"""

from collections.abc import Sequence
from typing import Any

_SPACE_MASK = (1 << 64) - 1
_START = (0, 0)

Place = tuple[int, int]
"""What is known of where a block stands: (digest of the tokens up to its end, digest of its keys)."""


class KeySplits:
    """Count splits among the blocks whose place is known.

    A block's place follows from its parent's, and the first block of a prompt has none; where a
    parent is no longer remembered, its children are not judged. `bound`: how many places, and how
    many parents, are remembered. `threshold` of a call samples places as names are sampled.
    """

    def __init__(self, bound: int) -> None:
        self._bound = max(1, bound)
        self._keys_at: dict[int, int] = {}
        self._parents: dict[int, Place] = {}

    def store(
        self,
        names: Sequence[int],
        parent: int | None,
        contents: Sequence[int],
        keys: Sequence[int | None],
        threshold: int,
    ) -> tuple[int, int]:
        """Take the blocks of one store, in chain order; return (judged, split).

        `parent`: the name of the block before them, None at a prompt's start. `contents`: a digest
        of each block's tokens; `keys`: one of its own keys, None without any.
        """
        place = _START if parent is None else self._parents.get(parent)
        if place is None:
            return 0, 0
        judged = split = 0
        tokens, key = place
        known, parents = self._keys_at, self._parents
        for name, content, own in zip(names, contents, keys, strict=True):
            tokens = hash((tokens, content)) & _SPACE_MASK
            if own is not None:
                key = hash((key, own)) & _SPACE_MASK
            if name < threshold:
                parents[name] = (tokens, key)
            if tokens < threshold:
                judged += 1
                last = known.pop(tokens, None)
                split += last is not None and last != key
                known[tokens] = key
        parents[names[-1]] = (tokens, key)  # whatever is sampled: the prompt may go on
        for remembered in (known, parents):
            if len(remembered) > self._bound:
                _drop_oldest_half(remembered)
        return judged, split


def _drop_oldest_half(remembered: dict[int, Any]) -> None:
    for key in list(remembered)[: len(remembered) // 2]:
        del remembered[key]
