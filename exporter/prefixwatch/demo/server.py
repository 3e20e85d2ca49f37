"""The stand-in on the network, driven by the wall clock."""

import asyncio
import contextlib
import errno
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import web

from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.offline import request_row
from prefixwatch.demo.releases import LATEST
from prefixwatch.demo.scenarios import SCENARIOS, TOUR, scenario_named
from prefixwatch.demo.standin import StandIn

_TICK_SECONDS = 0.05
_SLICE_SECONDS = 0.05
_BUSY_SECONDS = 0.008
_CATCH_UP_SECONDS = 1.0

STANDIN = web.AppKey("standin", StandIn)


def application(standin: StandIn) -> web.Application:
    """Return the server: vLLM's endpoints, and /truth and /scenario beside them."""
    app = web.Application(middlewares=[_answer_only_while_up])
    app[STANDIN] = standin
    app.add_routes(
        [
            web.get("/metrics", _metrics),
            web.get("/version", _version),
            web.get("/health", _health),
            web.post("/reset_prefix_cache", _reset_prefix_cache),
            web.post("/sleep", _sleep),
            web.post("/wake_up", _wake_up),
            web.get("/truth", _truth),
            web.get("/scenario", _scenario),
            web.post("/scenario", _switch),
        ]
    )
    return app


class WallTime:
    """Map engine seconds to unix seconds; ``speed`` engine seconds pass in a wall second."""

    def __init__(self, *, epoch: float, speed: float) -> None:
        self._epoch = epoch
        self._speed = speed

    def unix(self, now: float) -> float:
        """Return the unix time of an engine time."""
        return self._epoch + now / self._speed

    def engine_seconds(self, wall: float) -> float:
        """Return how far the engine goes in ``wall`` seconds.

        What is more than a second is lost, not caught up with: the machine slept, or cannot
        keep up with the speed.
        """
        lost = max(0.0, wall - _CATCH_UP_SECONDS)
        self._epoch += lost
        return (wall - lost) * self._speed


class Running:
    """A stand-in that serves and whose time goes on; ``close`` ends both."""

    def __init__(self, standin: StandIn, wall: WallTime) -> None:
        self.standin = standin
        self.url = ""
        self._wall = wall
        self._runner = web.AppRunner(application(standin), access_log=None, shutdown_timeout=1.0)
        self._driver: asyncio.Task[None] | None = None

    async def open(self, *, host: str, port: int) -> None:
        """Bind and begin; raises DemoError where the address cannot be bound."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            is_busy = error.errno == errno.EADDRINUSE
            reason = "is in use" if is_busy else f"cannot be bound ({error.strerror})"
            message = f"port {port} on {host} {reason}; use another one, or 0 for any that is free"
            raise DemoError(message) from error
        bound = self._runner.addresses[0][1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{bound}"
        self.standin.start()
        self._driver = asyncio.create_task(self._drive())

    def switch(self, scenario: str) -> None:
        """Go over to another scenario; raises DemoError for an unknown name."""
        self.standin.switch(scenario_named(scenario))

    async def tour(self, *, seconds: float, say: Callable[[str], None]) -> bool:
        """Go through the scenarios, ``seconds`` of wall time each, and say what can be seen.

        Return whether it came to its end: not where somebody chose another scenario meanwhile.
        """
        for name in TOUR:
            self.switch(name)
            say(f"{name}: {SCENARIOS[name].sees}")
            await asyncio.sleep(seconds)
            if self.standin.scenario.name != name:
                return False
        return True

    async def close(self) -> None:
        """Stop the time and the server."""
        if self._driver is not None:
            self._driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._driver
        await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        """Return itself, already open."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def _drive(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            await self._advance(self.standin.now + self._wall.engine_seconds(now - last))
            last = now

    async def _advance(self, until: float) -> None:
        # In slices, so that a page is answered in time however fast the time goes.
        since = time.perf_counter()
        while self.standin.now < until:
            self.standin.advance(min(until, self.standin.now + _SLICE_SECONDS))
            if time.perf_counter() - since > _BUSY_SECONDS:
                await asyncio.sleep(0)
                since = time.perf_counter()


async def serve(
    scenario: str = "healthy",
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    speed: float = 1.0,
    release: str = LATEST,
    seed: int = 1,
    model_name: str = "tiny",
    kv_cache_metrics_sample: float | None = 1.0,
) -> Running:
    """Serve a scenario and return it running.

    ``speed`` is engine seconds a wall second: counters grow that much faster, while durations on
    the page stay the engine's. ``kv_cache_metrics_sample`` of None leaves the residency histograms
    out, as vLLM does without its flag. Raises DemoError for an unknown scenario or release, a
    speed that is not positive, or an address that cannot be bound.
    """
    if not speed > 0:
        raise DemoError(f"speed {speed!r} must be above 0; 1 is real time")
    wall = WallTime(epoch=time.time(), speed=speed)
    standin = StandIn(
        scenario_named(scenario),
        seed=seed,
        release=release,
        model_name=model_name,
        half_time=30.0 * speed,
        down_seconds=3.0 * speed,
        kv_cache_metrics_sample=kv_cache_metrics_sample,
        unix=wall.unix,
    )
    running = Running(standin, wall)
    await running.open(host=host, port=port)
    return running


@web.middleware
async def _answer_only_while_up(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    is_engine = request.path not in ("/truth", "/scenario")
    if is_engine and not request.app[STANDIN].is_up and request.transport is not None:
        # A server that restarts has no socket to answer on.
        request.transport.abort()
    return await handler(request)


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(
        body=request.app[STANDIN].page(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


async def _version(request: web.Request) -> web.Response:
    return web.json_response({"version": request.app[STANDIN].release})


async def _health(_request: web.Request) -> web.Response:
    return web.Response()


async def _reset_prefix_cache(request: web.Request) -> web.Response:
    running_too = request.query.get("reset_running_requests", "false").lower() == "true"
    return web.json_response({"success": request.app[STANDIN].reset_prefix_cache(reset_running_requests=running_too)})


async def _sleep(request: web.Request) -> web.Response:
    level = request.query.get("level", "1")
    if level not in ("1", "2"):
        raise web.HTTPBadRequest(text=f"level {level!r} must be 1 or 2\n")
    request.app[STANDIN].sleep(int(level))
    return web.json_response({"status": "sleeping", "level": int(level)})


async def _wake_up(request: web.Request) -> web.Response:
    request.app[STANDIN].sleep(0)
    return web.json_response({"status": "awake"})


async def _truth(request: web.Request) -> web.Response:
    standin = request.app[STANDIN]
    return web.json_response(
        {
            "scenario": standin.scenario.name,
            "cause": standin.scenario.cause,
            "seed": standin.seed,
            "now": standin.unix(standin.now),
            "restarts": standin.restarts,
            "clears": standin.clears,
            "requests": [request_row(finished, standin.unix) for finished in standin.requests],
            "evictions": [
                {"t": round(standin.unix(one.at), 3), "engine": one.engine, "hash": one.hash[:8].hex()}
                for one in standin.evictions
            ],
        }
    )


async def _scenario(request: web.Request) -> web.Response:
    current = request.app[STANDIN].scenario
    return web.json_response(
        {
            "current": current.name,
            "scenarios": [{"name": one.name, "cause": one.cause, "sees": one.sees} for one in SCENARIOS.values()],
        }
    )


async def _switch(request: web.Request) -> web.Response:
    try:
        body = await request.json()
        scenario = scenario_named(str(body["scenario"]))
    except DemoError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    except (ValueError, KeyError, TypeError) as error:
        raise web.HTTPBadRequest(text='the body must be {"scenario": "NAME"}\n') from error
    request.app[STANDIN].switch(scenario)
    return web.json_response({"current": scenario.name, "cause": scenario.cause, "sees": scenario.sees})
