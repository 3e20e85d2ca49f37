"""The HTTP side: /metrics, /, /healthz, /readyz, /api/v1/status. Knows nothing of vLLM."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from prefixwatch import overview, snapshot
from prefixwatch.collector import StatusCollector
from prefixwatch.config import Config
from prefixwatch.listener.guard import Guard, no_terms
from prefixwatch.listener.negotiation import accepts_gzip, by_preference
from prefixwatch.listener.pieces import Pieces, gzipped
from prefixwatch.listener.webfile import Terms
from prefixwatch.poller import Poller

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

TURN_ITEMS = 50
"""Of so many targets the page or the JSON is made in one turn: some 20 ms."""

_POLLER = web.AppKey("poller", Poller)
_CONFIG = web.AppKey("config", Config)
_COLLECTOR = web.AppKey("collector", StatusCollector)
_RENDERER = web.AppKey("renderer", ThreadPoolExecutor)
_TASK = web.AppKey("polling", asyncio.Task[None])


def application(
    config: Config, poller: Poller, *, polls: bool = True, terms: Callable[[], Awaitable[Terms]] = no_terms
) -> web.Application:
    """Return the application. It starts `poller` with it and stops it after; not where `polls` is False.

    `terms`: on which terms it answers. The two probes ask for no credentials: kubelet has none.
    """
    app = web.Application()
    app[_POLLER], app[_CONFIG] = poller, config
    app[_COLLECTOR] = StatusCollector(
        lambda: poller.statuses,
        windows=config.windows,
        is_targets_file_good=lambda: poller.discovery.is_file_good,
        dns_names=lambda: poller.discovery.dns_names,
    )
    app.router.add_get("/", _index)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/healthz", _healthy)
    app.router.add_get("/readyz", _ready)
    app.router.add_get("/api/v1/status", _status)
    Guard(terms, probes=(_healthy, _ready)).install(app)
    app.cleanup_ctx.append(_rendering)
    if polls:
        app.cleanup_ctx.append(_polling)
    return app


async def _rendering(app: web.Application) -> AsyncIterator[None]:
    # One thread for all answers: many requests at once slow each other down, and not the polling.
    app[_RENDERER] = ThreadPoolExecutor(1, thread_name_prefix="render")
    yield
    app[_RENDERER].shutdown(wait=False, cancel_futures=True)


async def _rendered(request: web.Request, render: Callable[[], _T]) -> _T:
    """Return what `render` gives; it runs beside the polling."""
    return await asyncio.get_running_loop().run_in_executor(request.app[_RENDERER], render)


async def _in_turns(request: web.Request, items: Iterator[_T]) -> list[_T]:
    """Return all of what an iterator makes, some at a time: a scrape comes in between, and is not late for its timeout."""
    made: list[_T] = []
    while some := await _rendered(request, lambda: list(islice(items, TURN_ITEMS))):
        made += some
    return made


async def _polling(app: web.Application) -> AsyncIterator[None]:
    task = app[_TASK] = asyncio.create_task(_poll(app[_POLLER]))
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _poll(poller: Poller) -> None:
    try:
        await poller.run()
    except Exception:  # noqa: BLE001  told at once, and by /healthz from then on
        _log.exception("the polling has ended inside the exporter")


async def _metrics(request: web.Request) -> web.Response:
    """Answer a scrape, in the format and coding that it asks for."""
    collector = request.app[_COLLECTOR]
    try:
        _, content_type = choose_encoder(by_preference(_header(request, "Accept")))
    except (TypeError, ValueError):  # a version that is none
        _, content_type = choose_encoder("")
    is_openmetrics = content_type.startswith("application/openmetrics-text")
    names = request.query.getall("name[]", None)
    is_gzipped = accepts_gzip(_header(request, "Accept-Encoding"))

    def render() -> Pieces:
        text = collector.pieces(is_openmetrics=is_openmetrics, names=names)
        return Pieces(gzipped(text) if is_gzipped else text)

    body = await _rendered(request, render)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if is_gzipped:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers=headers)


def _header(request: web.Request, name: str) -> str:
    """Return a header that is a list, in however many lines it came."""
    return ",".join(request.headers.getall(name, []))


async def _healthy(request: web.Request) -> web.Response:
    """Say whether this process works; what engines answer plays no part in it."""
    task = request.app.get(_TASK)
    fault = None
    if task is not None:
        fault = "the polling has ended" if task.done() else request.app[_POLLER].why_ill()
    return web.Response(text="ok\n") if fault is None else web.Response(status=503, text=f"{fault}\n")


async def _ready(request: web.Request) -> web.Response:
    if request.app[_POLLER].is_ready:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="the first round of polling has not ended yet\n")


async def _status(request: web.Request) -> web.Response:
    """Answer the contract's JSON over `?window=5m`, by default the window of the diagnosis."""
    config = request.app[_CONFIG]
    window = config.diagnosis_window
    if wanted := request.query.get("window"):
        matching = [span for span in config.windows if str(span) == wanted]
        if not matching:
            known = ", ".join(str(span) for span in config.windows)
            return web.Response(status=400, text=f"window: not one of {known}\n")
        window = matching[0]
    statuses = request.app[_POLLER].statuses
    snapshots = await _in_turns(request, (status.snapshot(window) for status in statuses))
    body = await _rendered(request, lambda: snapshot.encoded(snapshots))
    return web.Response(body=body, content_type="application/json")


async def _index(request: web.Request) -> web.Response:
    """Answer the page for people; `?target=`, `?model=`, `?cause=` and `?show=trouble` narrow it down."""
    config, poller = request.app[_CONFIG], request.app[_POLLER]
    query, statuses, now = request.query, poller.statuses, time.time()
    choice = overview.Choice(
        target=query.get("target"),
        model=query.get("model"),
        cause=query.get("cause"),
        only_troubled=query.get("show") == "trouble",
    )

    trend = await _rendered(request, lambda: overview.trend_scale(statuses, config))
    views = await _in_turns(request, overview.views_of(statuses, config=config, trend=trend, choice=choice))
    shown = overview.Overview(
        targets=views,
        time=now,
        window=config.diagnosis_window,
        trend_span=trend[0],
        refresh=max(config.poll_interval, overview.MIN_REFRESH),
        choice=choice,
        is_discovered=poller.discovery.is_done,
        is_targets_file_good=poller.discovery.is_file_good,
    )
    text = await _rendered(request, lambda: overview.rendered(shown))
    return web.Response(text=text, content_type="text/html", headers=overview.HEADERS)
