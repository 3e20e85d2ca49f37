"""The layout of a page: its lines but for their values.

Poll after poll an engine writes the same lines with other values. Whether a page still has a known
layout is checked by comparing what its lines begin with, which is much faster than to look each
line up.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import compress
from operator import getitem

_up_to = lru_cache(maxsize=1024)(slice)
"""Many lines share one slice: they are as long as each other, or compared as a whole."""


class Layout:
    """What each line of a page begins with, and which of them are samples.

    A sample or a line that is passed over is given by its text up to its value, with the space in
    between; any other line (`starts` of None) by the whole of it. `bytes`: how much text that is.
    """

    def __init__(self, lines: Sequence[bytes], starts: Iterable[bytes | None], is_sample: Sequence[bool]) -> None:
        starts = list(starts)
        self._starts = [line if start is None else start for line, start in zip(lines, starts, strict=True)]
        self._heads = [_up_to(None if start is None else len(start)) for start in starts]
        samples = compress(enumerate(self._starts), is_sample)
        self._values = [(place, slice(len(start), None)) for place, start in samples]
        self.bytes = sum(map(len, self._starts))

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._starts)

    def values(self, lines: Sequence[bytes]) -> tuple[float, ...] | None:
        """Return the values of the samples of a page of this layout; None where it has another."""
        if len(lines) != len(self._starts) or list(map(getitem, lines, self._heads)) != self._starts:
            return None
        texts = [lines[place][behind] for place, behind in self._values]
        if b"_" in b"".join(texts):  # Python would take 1_000, the format does not
            return None
        try:
            return tuple(map(float, texts))
        except ValueError:
            return None
