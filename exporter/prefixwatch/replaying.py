"""Read pages and traces from files."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from prefixwatch.diagnosis import diagnose
from prefixwatch.eventchannel import ChannelStatus
from prefixwatch.eventtrace import recorded_events
from prefixwatch.figures.engine import since_start, window_figures
from prefixwatch.figures.events import CacheEvent, EventTally
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.page.lines import NotAPage, PageError
from prefixwatch.snapshot import EngineFigures, TargetSnapshot
from prefixwatch.targetwatch import Refused, TargetWatch
from prefixwatch.trace import Scrape, TraceError, scrapes

_UNIX_SECONDS = 1e8
"""From here on a moment is unix seconds (1973), below it seconds from the start of a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A replayed trace: the watch that saw it, how many scrapes could (not) be used, and why not."""

    watch: TargetWatch
    used: int
    unused: int
    first_fault: str | None
    is_up: bool


def read_page(content: bytes, name: str) -> TargetSnapshot:
    """Read one page, since its engine's start. Raises `PageError`."""
    if content.startswith(b"# SCRAPE "):
        raise NotAPage("this is a recorded trace: use `prefixwatch replay`", 1)
    read = PageReader(is_wanted).read(content)
    if read.is_cut and not (read.series or read.other_names or read.helps or read.types):
        raise NotAPage("not one whole line of metrics: is this a page, or the beginning of one?", 1)
    page = Interpreter().interpret(read, time=0.0)
    engines = []
    for reading in page.engines:
        figures = window_figures(reading, since_start(reading), era=page.era)
        engines.append(EngineFigures.of(figures, diagnose(figures)))
    return TargetSnapshot(
        target=_text(name),
        is_up=True,
        dialect=page.dialect,
        release=None,
        caveats=tuple(str(caveat) for caveat in page.caveats),
        engines=tuple(engines),
        error=page.why_empty,
    )


class RecordedFeed:
    """Recorded cache events, taken up to the moment of each scrape."""

    lock: AbstractContextManager[object] = nullcontext()

    def __init__(self, path: Path) -> None:
        self._events: Iterator[tuple[str, CacheEvent]] = recorded_events(path)
        self._next = next(self._events, None)
        self._tallies: dict[str, EventTally] = {}

    def take(self, until: float) -> None:
        """Take the events up to a moment."""
        while self._next is not None and self._next[1].time <= until:
            engine, event = self._next
            self._tallies.setdefault(engine, EventTally()).observe(event)
            self._next = next(self._events, None)

    def tallies(self) -> Mapping[str, EventTally]:
        """Return the tally of each engine that events came from, by its rank."""
        return self._tallies

    def status(self) -> tuple[ChannelStatus, ...]:
        """Return nothing: there is no endpoint."""
        return ()


def replay(path: Path, *, until: float | None = None, kv_events: Path | None = None) -> Replayed:
    """Replay a trace up to `until`: unix seconds, or seconds from its start where that is small.

    `kv_events`: recorded cache events of the same time. A scrape whose page is broken or cut off moves
    nothing, as in a poll. Raises `TraceError` where the file is no trace, no scrape of it could be
    used, or `until` or the events lie outside of its time.
    """
    reader, interpreter = PageReader(is_wanted), Interpreter()
    feed = RecordedFeed(kv_events) if kv_events else None
    watch = TargetWatch(_text(path.name or str(path)), feed=feed)
    used, faults, is_up = 0, [], False
    for scrape in _up_to(until, path):
        is_up = False
        if feed is not None:
            feed.take(scrape.time)
        if scrape.body is None:
            watch.fail(f"the scrape failed: {scrape.error}")
            continue
        try:
            page = reader.read(scrape.body)
            if page.is_cut:
                raise PageError("the page ends in the middle", scrape.body.count(b"\n") + 1)
            watch.add(interpreter.interpret(page, time=scrape.time))
        except PageError as error:
            faults.append(f"line {scrape.line + (error.line or 1) - 1}: {error.fault}")
            watch.fail(error.fault)
        except Refused as error:
            faults.append(f"line {scrape.line}: {error}")
            watch.fail(str(error))
        else:
            used, is_up = used + 1, True
    if not used:
        raise TraceError(f"{path}: {faults[0] if faults else 'line 1: no scrape of this trace gave a page'}")
    if feed is not None and until is None and not feed.tallies():
        raise TraceError(f"{kv_events}: every cache event in it is of a later time than {path}")
    return Replayed(watch=watch, used=used, unused=len(faults), first_fault=faults[0] if faults else None, is_up=is_up)


def _up_to(until: float | None, path: Path) -> Iterator[Scrape]:
    """Yield the scrapes up to a moment, which must lie within the trace, or little more than an interval behind it."""
    start = last = moment = None
    interval = 0.0
    for scrape in scrapes(path):
        if start is None:
            start = scrape.time
            if until is not None and _UNIX_SECONDS <= until < start:
                raise TraceError(f"{path}: line 1: the trace begins at {start:.3f}, after the moment asked for")
            if until is not None:  # a trace may have seconds of its own, below what would be unix seconds
                moment = until if until >= min(start, _UNIX_SECONDS) else start + until
        if moment is not None and scrape.time > moment:
            return
        interval = 0.0 if last is None else scrape.time - last
        last = scrape.time
        yield scrape
    if start is not None and last is not None and moment is not None and moment > last + 1.5 * interval:
        raise TraceError(
            f"{path}: the trace ends at {last:.3f}, {last - start:.0f} s from its start, before the moment asked for"
        )


def _text(name: str) -> str:
    """Return a file's name as text: one that is not UTF-8 cannot be written anywhere."""
    return name.encode("utf-8", "replace").decode()
