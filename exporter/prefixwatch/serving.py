"""The commands that take time: serve, check, record. Signals, sockets and progress."""

import asyncio
import itertools
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from aiohttp import web
from rich.console import Console
from rich.status import Status
from rich.text import Text

from prefixwatch.addresses import host_and_port
from prefixwatch.config import Config
from prefixwatch.discovery import Target
from prefixwatch.eventstream import EventSource, EventStream, require
from prefixwatch.fetch import Address, Fetcher, FetchError, session
from prefixwatch.listener.accepting import Listener
from prefixwatch.listener.guard import no_terms
from prefixwatch.listener.webfile import WebFile
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.poller import Poller
from prefixwatch.settings import ConfigError
from prefixwatch.snapshot import TargetSnapshot
from prefixwatch.targetpoller import TargetPoller, steady_clock
from prefixwatch.targetwatch import EventFeed, TargetWatch
from prefixwatch.trace import Recorder
from prefixwatch.web import application

_HOPELESS = ("http_4xx", "redirect", "not_metrics")
"""What does not pass by itself, so that a check need not go on."""

_ENOUGH = 2
_TIMEOUT = 5.0
MAX_PAGE_BYTES = 16 * 2**20
_DRAIN_SECONDS = 2.0
_CLEANUP_SECONDS = 0.5
_TOLERANCE = 0.001

_log = logging.getLogger(__name__)


async def serve(config: Config, *, started: Callable[[str], None] | None = None) -> int:
    """Poll and serve until SIGINT or SIGTERM. Raises `ConfigError` where it cannot listen.

    `started` is told the address that it listens on.
    """
    if config.events.endpoints or any(target.events for target in config.targets):
        require()
    terms = WebFile(Path(config.web_config_file)).terms if config.web_config_file else no_terms
    stop = stopping()
    app = application(config, Poller(config), terms=terms)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_CLEANUP_SECONDS)
    await runner.setup()
    assert runner.server is not None
    listener = Listener(runner.server, terms)
    try:
        host, port = config.address
        try:
            port = listener.listen(host, port)
        except OSError as error:
            words = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ConfigError(f"cannot listen on {config.listen}: {words}; free it or give another --listen") from None
        address = f"{config.listen.rpartition(':')[0]}:{port}"
        _log.info("serving", extra={"listen": address})
        if started:
            started(address)
        await stop.wait()
        _log.info("stopping")
    finally:
        await listener.close(within=_DRAIN_SECONDS)
        await runner.cleanup()
    return 0


async def check(
    address: Address, *, seconds: float, interval: float, window: float | None, events: EventSource | None = None
) -> TargetSnapshot:
    """Poll one target for a while, or until Ctrl-C, and return its figures.

    Raises `ConfigError` where there is time for one poll alone.
    """
    if interval > seconds + _TOLERANCE:
        raise ConfigError(f"--interval: {interval:g} s: longer than --for, {seconds:g} s: a window needs two polls")
    stream = EventStream(host_and_port(address.url), events) if events else None
    if stream is None:
        return await _checked(address, seconds=seconds, interval=interval, window=window)
    stream.start()
    try:
        return await _checked(address, seconds=seconds, interval=interval, window=window, feed=stream)
    finally:
        stream.stop()


async def _checked(
    address: Address, *, seconds: float, interval: float, window: float | None, feed: EventFeed | None = None
) -> TargetSnapshot:
    target = Target(name=host_and_port(address.url), address=address, labels={})
    clock = steady_clock()
    async with session() as shared:
        poller = TargetPoller(
            target,
            Config(),
            Fetcher(shared, timeout=_TIMEOUT, max_bytes=MAX_PAGE_BYTES),
            PageReader(is_wanted),
            watch=TargetWatch(target.name, feed=feed),
            spans=(window,),
            clock=clock,
        )
        with _progress(target.name, seconds) as show:

            async def poll(since: float) -> bool:
                await poller.poll()
                status = poller.status
                show(since, sum(status.errors.values()), status.state.error)
                hopeless = sum(status.errors.get(reason, 0) for reason in _HOPELESS)
                return hopeless < _ENOUGH or status.last_success is not None

            await _repeat(poll, seconds=seconds, interval=interval, clock=clock)
    return poller.status.state.snapshot(window, is_up=bool(poller.status.is_up))


async def record(address: Address, file: Path, *, seconds: float | None, interval: float) -> int:
    """Write a trace until the time is over, or Ctrl-C. Raises `TraceError` for a file that cannot be written."""
    name, clock = host_and_port(address.url), steady_clock()
    pages, failed = 0, 0
    with closing(Recorder(file)) as recorder, _progress(name, seconds) as show:
        async with session() as shared:
            fetcher = Fetcher(shared, timeout=_TIMEOUT, max_bytes=MAX_PAGE_BYTES)

            async def scrape(since: float) -> bool:
                nonlocal pages, failed
                at, error = clock(), None
                try:
                    body = await fetcher.page(address)
                except FetchError as fault:
                    failed, error = failed + 1, str(fault)
                    recorder.error(at, fault.kind)
                else:
                    pages += 1
                    recorder.page(at, body.content)
                show(since, failed, error)
                return True

            await _repeat(scrape, seconds=seconds, interval=interval, clock=clock)
    reads = f"; read them with: prefixwatch replay {file}" if pages else ": the target gave none, only errors are in it"
    print(f"{pages} pages in {file}{reads}", file=sys.stderr)
    return 0 if pages else 1


async def _repeat(
    work: Callable[[float], Coroutine[None, None, bool]],
    *,
    seconds: float | None,
    interval: float,
    clock: Callable[[], float],
) -> None:
    """Do `work` each `interval` until the time is over or Ctrl-C, which ends it at once.

    `work` is told the seconds since the begin, and returns whether to go on. Where it takes longer than an interval, the beats
    that it missed are left out.
    """
    begin, beat = clock(), 0
    stop = asyncio.create_task(stopping().wait())
    try:
        while True:
            doing = asyncio.create_task(work(clock() - begin))
            await asyncio.wait((doing, stop), return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                doing.cancel()
            await asyncio.wait((doing,))
            if not doing.cancelled() and not doing.result():
                return
            beat = max(beat + 1, math.ceil((clock() - begin) / interval))
            if seconds is not None and beat * interval > seconds + _TOLERANCE:
                return
            await asyncio.wait((stop,), timeout=max(0.0, begin + beat * interval - clock()))
            if stop.done():
                return
    finally:
        stop.cancel()


def stopping() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    return event


@contextmanager
def _progress(name: str, seconds: float | None) -> Iterator[Callable[[float, int, str | None], None]]:
    """Show a line that moves on a terminal; elsewhere nothing.

    What it yields takes the seconds since the begin, the polls that failed, and why the last one did.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    polls = itertools.count(1)
    whole = "" if seconds is None else f" of {seconds:.0f}"
    with Status("", console=console) as status:

        def show(since: float, failed: int, error: str | None) -> None:
            fault = f", {failed} failed: {error}" if failed and error else ""
            status.update(Text(f"{name}: {since:.0f}{whole} s, {next(polls)} polls{fault}"))

        yield show
