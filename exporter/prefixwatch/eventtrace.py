"""Recorded cache events: one JSON object a line, in order, gzipped or not.

A line has `t` (unix seconds), `engine` (rank) and one of `stored` (hashes in hex; with `parent`,
and digests of each block's `tokens` and `keys` where they were recorded), `removed`, `cleared`.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from prefixwatch.figures.events import CacheEvent, Cleared, Removed, Stored
from prefixwatch.trace import TraceError

NAMES = ("kv_events.jsonl.gz", "kv_events.jsonl")


class _Row(msgspec.Struct):
    t: float
    engine: int | None = None
    group: int = 0
    stored: list[str] | None = None
    parent: str | None = None
    tokens: list[str] | None = None
    keys: list[str | None] | None = None
    removed: list[str] | None = None
    cleared: bool = False


def recorded_events(path: Path) -> Iterator[tuple[str, CacheEvent]]:
    """Yield (engine, event) of a file, or of a folder that holds one.

    Raises `TraceError` for what cannot be read, or holds no event. A last line that was cut off is left out.
    """
    file = _found(path)
    is_empty = True
    for found in _read(file):
        is_empty = False
        yield found
    if is_empty:
        raise TraceError(f"{file}: line 1: no cache event in it: was anything recorded?")


def _read(file: Path) -> Iterator[tuple[str, CacheEvent]]:
    decode = msgspec.json.Decoder(_Row).decode
    number = 0
    try:
        with _opened(file) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    if line.strip():
                        yield from _events(decode(line))
                except (msgspec.DecodeError, ValueError) as error:
                    if not line.endswith(b"\n"):
                        return
                    raise TraceError(f"{file}: line {number}: not a cache event: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{file}: line {number + 1}: the compressed file is broken or ends early ({error})") from None
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror or error}") from None


def _events(row: _Row) -> Iterator[tuple[str, CacheEvent]]:
    engine = str(row.engine or 0)
    if row.cleared:
        yield engine, Cleared(time=row.t)
    if row.removed:
        yield engine, Removed(time=row.t, hashes=_integers(row.removed), group=row.group)
    if row.stored:
        is_whole = row.tokens is not None and len(row.tokens) == len(row.stored)
        keys = [None if key is None else int(key, 16) for key in row.keys or ()]
        yield (
            engine,
            Stored(
                time=row.t,
                hashes=_integers(row.stored),
                parent=None if row.parent is None else int(row.parent[:16], 16),
                group=row.group,
                contents=_integers(row.tokens) if row.tokens and is_whole else None,
                keys=keys if len(keys) == len(row.stored) else None,
            ),
        )


def _integers(texts: list[str]) -> list[int]:
    return [int(text[:16], 16) for text in texts]


def _found(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in NAMES:
        if (path / name).is_file():
            return path / name
    raise TraceError(f"{path}: no {' or '.join(NAMES)} in this folder")


def _opened(file: Path) -> BinaryIO:
    with file.open("rb") as probe:
        is_gzipped = probe.read(2) == b"\x1f\x8b"
    return gzip.open(file, "rb") if is_gzipped else file.open("rb")  # type: ignore[return-value]
