"""The commands that take time: serve, check, record. Signals, sockets and progress."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from rich.console import Console
from rich.status import Status

from prefixwatch.config import Config, ConfigError, host_and_port
from prefixwatch.fetch import Address, Body, Fetcher, FetchError, session
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageError, PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.poller import Poller, steady_clock
from prefixwatch.snapshot import TargetSnapshot
from prefixwatch.trace import Recorder
from prefixwatch.watch import Refused, TargetWatch
from prefixwatch.web import application

_TIMEOUT = 5.0
_MAX_BYTES = 16 * 2**20
_DRAIN_SECONDS = 3.0


async def serve(config: Config, *, started: Callable[[str], None] | None = None) -> int:
    """Poll and serve until SIGINT or SIGTERM. Raises `ConfigError` where it cannot listen."""
    stop = stopping()
    runner = web.AppRunner(
        application(config, Poller(config)), access_log=None, handle_signals=False, shutdown_timeout=_DRAIN_SECONDS
    )
    await runner.setup()
    try:
        host, port = config.address
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {config.listen}: {error.strerror or error}; free it or give another --listen"
            ) from None
        if started:
            started(config.listen)
        await stop.wait()
    finally:
        await runner.cleanup()
    return 0


async def check(address: Address, *, seconds: float, interval: float, window: float | None) -> TargetSnapshot:
    """Poll one target for a while, or until Ctrl-C, and return its figures."""
    watch = TargetWatch(host_and_port(address.url))
    reader, interpreter = PageReader(is_wanted), Interpreter()
    is_up, release = False, None
    with _progress() as say:
        async for at, body, fetcher in _pages(address, seconds=seconds, interval=interval, say=say):
            if isinstance(body, FetchError):
                watch.fail(str(body))
                is_up = False
                continue
            if release is None:
                release = await fetcher.release(address)
            try:
                page = reader.read(body.content, is_openmetrics=body.is_openmetrics)
                if page.is_cut:
                    raise PageError("the page ends in the middle")
                watch.add(interpreter.interpret(page, time=at, release=release))
                is_up = True
            except (PageError, Refused) as error:
                watch.fail(str(error))
                is_up = False
    return watch.state((window,)).snapshot(window, is_up=is_up)


async def record(address: Address, file: Path, *, seconds: float | None, interval: float) -> int:
    """Write a trace until the time is over, or Ctrl-C. Raises `TraceError` for a file that cannot be written."""
    recorder = Recorder(file)
    pages = 0
    try:
        with _progress() as say:
            async for at, body, _ in _pages(address, seconds=seconds, interval=interval, say=say):
                if isinstance(body, FetchError):
                    recorder.error(at, body.kind)
                else:
                    recorder.page(at, body.content)
                    pages += 1
    finally:
        recorder.close()
    print(f"{pages} pages in {file}; read them with: prefixwatch replay {file}", file=sys.stderr)
    return 0 if pages else 1


async def _pages(
    address: Address, *, seconds: float | None, interval: float, say: Callable[[str], None]
) -> AsyncIterator[tuple[float, Body | FetchError, Fetcher]]:
    """Yield (time, page or error, fetcher) each `interval` until the time is over or Ctrl-C."""
    clock, stop = steady_clock(), stopping()
    begin, polls, failed = clock(), 0, 0
    async with session() as shared:
        fetcher = Fetcher(shared, timeout=_TIMEOUT, max_bytes=_MAX_BYTES)
        while not stop.is_set():
            at = clock()
            body: Body | FetchError
            try:
                body = await fetcher.page(address)
            except FetchError as error:
                body, failed = error, failed + 1
            polls += 1
            left = "" if seconds is None else f" of {seconds:.0f}"
            note = f", {failed} failed: {body}" if isinstance(body, FetchError) else ""
            say(f"{address.url}: {at - begin:.0f}{left} s, {polls} polls{note}")
            yield at, body, fetcher
            next_poll = begin + polls * interval
            if seconds is not None and next_poll > begin + seconds + 0.001:
                return
            next_poll = max(next_poll, clock())
            try:
                await asyncio.wait_for(stop.wait(), next_poll - clock())
            except TimeoutError:
                continue


def stopping() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    return event


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show a line that moves on a terminal; elsewhere nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Status("", console=console) as status:
        yield status.update
