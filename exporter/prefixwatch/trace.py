"""Recorded traces: the text of /metrics, scrape after scrape.

A line `# SCRAPE <unix seconds>` starts each scrape; one that failed is a line
`# SCRAPE <unix seconds> error <kind>` with nothing under it. The file may be gzipped, and is
called `scrapes.txt.gz` where it lies in a folder of its own.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_MARK = re.compile(rb"# SCRAPE (\d{1,12}(?:\.\d*)?)(?: error(?: (.*\S))?)?\s*$")
_NAMES = ("scrapes.txt.gz", "scrapes.txt")


class TraceError(Exception):
    """A trace that cannot be read or written: names the file, the line and the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One scrape of a trace: its time (unix seconds), its page, or the kind of error that it met.

    `line` is the line of the file at which its page starts.
    """

    time: float
    body: bytes | None
    error: str | None
    line: int


def scrapes(path: Path) -> Iterator[Scrape]:
    """Yield the scrapes of a trace: a file, or a folder that holds one.

    A mark without a line end is the last of a recording that was cut off, and is left out. Raises
    `TraceError` for a file that cannot be read, holds no scrape, or has a line that is only like a mark.
    """
    file = _found(path)
    started: tuple[float, str | None, int] | None = None
    body: list[bytes] = []
    number = 0
    for number, line in enumerate(_lines(file), 1):
        at = line.rfind(b"# SCRAPE ")
        mark = _MARK.match(line, at) if at >= 0 else None
        if mark is None:
            if started is None and line.strip():
                raise TraceError(f'{file}: line {number}: not a trace: it must start with "# SCRAPE <unix seconds>"')
            if at == 0 and line.endswith(b"\n"):
                raise TraceError(f"{file}: line {number}: not a time, or something behind it: {ascii(line[:60])[2:-1]}")
            body.append(line)
            continue
        if at > 0:
            body.append(line[:at])  # a page that was cut off: its last line has no end
        kind = _kind(line, mark)
        if kind is None and not line.endswith(b"\n"):
            break
        if started is not None:
            yield _scrape(started, body)
        started = (float(mark[1]), kind, number + 1)
        body = []
    if started is None:
        raise TraceError(f'{file}: line 1: no "# SCRAPE <unix seconds>" line: not a trace')
    yield _scrape(started, body)


def _kind(line: bytes, mark: re.Match[bytes]) -> str | None:
    if b" error" not in line[mark.end(1) :]:
        return None
    return (mark[2] or b"unknown").decode("ascii", "replace")


def _scrape(started: tuple[float, str | None, int], body: list[bytes]) -> Scrape:
    time, error, line = started
    return Scrape(time=time, body=None if error else b"".join(body), error=error, line=line)


def _found(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in _NAMES:
        if (path / name).is_file():
            return path / name
    raise TraceError(f"{path}: no {' or '.join(_NAMES)} in this folder")


def _lines(file: Path) -> Iterator[bytes]:
    number = 0
    try:
        with _opened(file) as stream:
            for line in stream:
                number += 1
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(
            f"{file}: line {number + 1}: the compressed file is broken or ends early ({error}); "
            f"`gzip -dc {file} > whole.txt` saves what is readable"
        ) from None
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror or error}") from None


def _opened(file: Path) -> BinaryIO:
    with file.open("rb") as probe:
        is_gzipped = probe.read(2) == b"\x1f\x8b"
    return gzip.open(file, "rb") if is_gzipped else file.open("rb")  # type: ignore[return-value]


class Recorder:
    """Write a trace, gzipped where the file's name ends in .gz. Each scrape is flushed whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._stream: BinaryIO = gzip.open(path, "xb") if path.suffix == ".gz" else path.open("xb")  # type: ignore[assignment]  # noqa: SIM115  the caller closes it
        except FileExistsError:
            raise TraceError(f"{path}: exists already; name another file or remove it") from None
        except OSError as error:
            raise TraceError(f"{path}: cannot be written: {error.strerror}") from None

    def page(self, time: float, body: bytes) -> None:
        """Add a scrape that gave a page, as it came: one that was cut off stays so."""
        self._write(b"# SCRAPE %.3f\n" % time + body)

    def error(self, time: float, kind: str) -> None:
        """Add a scrape that failed; `kind` is one word."""
        self._write(b"# SCRAPE %.3f error %s\n" % (time, kind.encode("ascii", "replace")))

    def close(self) -> None:
        """End the file. Safe to call twice."""
        try:
            self._stream.close()
        except OSError as error:
            raise TraceError(f"{self._path}: cannot be written: {error.strerror}") from None

    def _write(self, text: bytes) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            raise TraceError(f"{self._path}: cannot be written: {error.strerror}") from None
