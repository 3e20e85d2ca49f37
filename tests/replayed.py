"""The real application over recorded traces, served from a thread on a free port."""

import asyncio
import copy
import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from aiohttp import web

from prefixwatch.config import Config
from prefixwatch.replaying import replay
from prefixwatch.targetpoller import TargetStatus
from prefixwatch.targetwatch import TargetWatch
from prefixwatch.web import application

TRACES = Path(__file__).parent / "data" / "traces"
SPANS = tuple(Config().windows)


def watched(trace: str, *, name: str = "localhost:8000") -> TargetWatch:
    """Return a watch that saw a whole trace; it may be changed."""
    watch = copy.copy(_replayed(trace))
    watch.target = name
    watch.engines = {key: copy.copy(engine) for key, engine in watch.engines.items()}
    return watch


@functools.cache
def _replayed(trace: str) -> TargetWatch:
    return replay(TRACES / trace).watch


def status_of(
    watch: TargetWatch,
    *,
    spans: Sequence[float] = SPANS,
    missed: int = 0,
    last_success: float | None = None,
    **changes: object,
) -> TargetStatus:
    """Return what a poller would say of a watch, `missed` polls after its last reading."""
    read = watch.page.time if watch.page else None
    fields: dict[str, object] = {
        "state": watch.state(spans), "is_up": not missed and watch.page is not None, "is_loading": False,
        "is_stale": missed >= 3, "duration": 0.01, "last_success": last_success or read, "began": 0.0, "errors": {},
    }  # fmt: skip
    return TargetStatus(**{**fields, **changes})


class ReplayedPoller:
    """What the application asks of a poller."""

    is_ready = True

    def __init__(self, watches: Sequence[TargetWatch], *, spans: Sequence[float] = SPANS) -> None:
        self.watches = list(watches)
        self.statuses = [status_of(watch, spans=spans) for watch in watches]
        self.discovery = SimpleNamespace(is_file_good=None, is_done=True)


@contextmanager
def serving(config: Config, poller: ReplayedPoller) -> Iterator[str]:
    """Serve in a thread until the block is left; gives the address."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(application(config, poller, polls=False), access_log=None, shutdown_timeout=0)
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
