"""The HTTP side: /metrics, /, /healthz, /readyz, /api/v1/status. Knows nothing of vLLM."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from prefixwatch import overview, snapshot
from prefixwatch.collector import StatusCollector
from prefixwatch.config import Config, Duration
from prefixwatch.poller import Poller, TargetStatus

_POLLER = web.AppKey("poller", Poller)
_CONFIG = web.AppKey("config", Config)
_REGISTRY = web.AppKey("registry", CollectorRegistry)


def application(config: Config, poller: Poller, *, polls: bool = True) -> web.Application:
    """Return the application. It starts `poller` with it and stops it after; not where `polls` is False."""
    app = web.Application()
    app[_POLLER], app[_CONFIG] = poller, config
    app[_REGISTRY] = CollectorRegistry()
    app[_REGISTRY].register(
        StatusCollector(
            lambda: poller.statuses,
            windows=config.windows,
            is_targets_file_good=lambda: poller.discovery.is_file_good,
        )
    )
    app.router.add_get("/", _index)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/healthz", _healthy)
    app.router.add_get("/readyz", _ready)
    app.router.add_get("/api/v1/status", _status)
    if polls:
        app.cleanup_ctx.append(_polling)
    return app


async def _polling(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(app[_POLLER].run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _metrics(request: web.Request) -> web.Response:
    """Answer a scrape; rendering runs beside the polling, in a thread."""
    registry = request.app[_REGISTRY]
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    names = request.query.getall("name[]", [])
    chosen = registry.restricted_registry(names) if names else registry
    is_gzipped = "gzip" in request.headers.get("Accept-Encoding", "")

    def render() -> bytes:
        text = encode(chosen)
        return gzip.compress(text, compresslevel=1) if is_gzipped else text

    body = await asyncio.to_thread(render)
    headers = {"Content-Type": content_type, **({"Content-Encoding": "gzip"} if is_gzipped else {})}
    return web.Response(body=body, headers=headers)


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


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
    targets = _snapshots(request.app[_POLLER].statuses, window)
    return web.Response(body=snapshot.encoded(targets), content_type="application/json")


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
    span, steps = overview.trend_scale(statuses, config)
    trends = poller.trends(span, steps)

    def render() -> str:
        shown = overview.overview_of(
            statuses,
            config=config,
            time=now,
            trend_span=span,
            trends=trends,
            choice=choice,
            is_discovered=poller.discovery.is_done,
            is_targets_file_good=poller.discovery.is_file_good,
        )
        return overview.rendered(shown)

    text = await asyncio.to_thread(render)
    return web.Response(text=text, content_type="text/html", headers=overview.HEADERS)


def _snapshots(statuses: list[TargetStatus], window: Duration) -> list[snapshot.TargetSnapshot]:
    return [status.snapshot(window) for status in statuses]
