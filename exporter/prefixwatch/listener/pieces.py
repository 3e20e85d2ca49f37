"""An answer that is there in pieces, and sent so: joined, or handed over at once, it would be there twice."""

import zlib
from collections import deque
from collections.abc import Iterable, Iterator

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

PIECE_BYTES = 2**16
"""So much is handed over at a time, and waits for the client to read it."""

_GZIP = 16 + zlib.MAX_WBITS


class Pieces(Payload):
    """A body in pieces. Each is let go once it was sent, so it can be sent once."""

    def __init__(self, pieces: Iterable[bytes | bytearray]) -> None:
        super().__init__(deque(pieces))
        self._size = sum(map(len, self._value))

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send all of it, as fast as it is read."""
        while self._value:
            piece = memoryview(self._value.popleft())
            for begin in range(0, len(piece), PIECE_BYTES):
                await writer.write(piece[begin : begin + PIECE_BYTES])

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return all of it as text."""
        return b"".join(self._value).decode(encoding, errors)


def gzipped(pieces: Iterable[bytes | bytearray]) -> Iterator[bytes]:
    """Yield pieces of the compressed text. Fast rather than small: of such text it leaves a tenth."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()
