"""The demo: a stand-in engine, its traffic and the exporter in one process; or the engine alone."""

import asyncio
import re
import sys
from contextlib import suppress

from prefixwatch.addresses import one_line
from prefixwatch.config import load
from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.scenarios import SCENARIOS
from prefixwatch.demo.server import Running, serve
from prefixwatch.serving import serve as serve_exporter
from prefixwatch.serving import stopping

TOUR_SECONDS = 60.0
WINDOWS = ("20s", "1m", "5m")
_LISTEN = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]]*):(?P<port>[0-9]{1,5})", re.ASCII)

_HELLO = """\
prefixwatch demo: a stand-in engine that behaves like vLLM {release}, traffic with a known cause, and the exporter.

  the page         http://{host}:{port}/
  metrics          http://{host}:{port}/metrics
  JSON             http://{host}:{port}/api/v1/status
  the engine       {url}/metrics, and what it really did: {url}/truth
  other traffic    curl -d '{{"scenario": "thrash_low_usage"}}' {url}/scenario   (GET lists them)
  another terminal {program} check {url}/metrics --for 20s

Ctrl-C ends all of it.
"""


async def demonstrate(
    scenario: str | None, *, listen: str, engine_port: int, release: str, seed: int, tour_seconds: float = TOUR_SECONDS
) -> int:
    """Run until SIGINT or SIGTERM; without a scenario, tour through all of them.

    Raises `DemoError` for an unknown scenario or release or a busy engine port, `ConfigError`
    where the exporter cannot listen.
    """
    async with await serve(scenario or "healthy", port=engine_port, release=release, seed=seed) as engine:
        settings = {
            "targets": [{"url": engine.url}],
            "listen": listen,
            "poll_interval": "1s",
            "windows": WINDOWS,
            "diagnosis_window": WINDOWS[0],
            "log_level": "warning",
        }
        config = load(None, {}, settings)
        guide: asyncio.Task[None] | None = None

        def greet(address: str) -> None:
            nonlocal guide
            host, _, port = address.rpartition(":")
            print(
                _HELLO.format(
                    release=release, host=host or "localhost", port=port, url=engine.url, program=sys.argv[0]
                ),
                flush=True,
            )
            guide = asyncio.create_task(_guided(engine, scenario, tour_seconds))

        try:
            return await serve_exporter(config, started=greet)
        finally:
            if guide is not None:
                guide.cancel()
                with suppress(asyncio.CancelledError):
                    await guide


async def stand_in(
    scenario: str | None, *, listen: str, release: str, seed: int, tour_seconds: float = TOUR_SECONDS
) -> int:
    """Run the engine and its traffic without the exporter, until SIGINT or SIGTERM.

    Raises `DemoError` for an unknown scenario or release, or an address that cannot be bound.
    """
    host, port = _address(listen)
    stop = stopping()
    async with await serve(scenario or "healthy", host=host, port=port, release=release, seed=seed) as engine:
        print(f"prefixwatch engine: a stand-in for vLLM {release} at {engine.url}/metrics", flush=True)
        guide = asyncio.create_task(_guided(engine, scenario, tour_seconds))
        try:
            await stop.wait()
        finally:
            guide.cancel()
            with suppress(asyncio.CancelledError):
                await guide
    return 0


def _address(listen: str) -> tuple[str, int]:
    """Read [HOST]:PORT; no host is every address."""
    parts = _LISTEN.fullmatch(listen)
    if parts is None or int(parts["port"]) > 65535:
        raise DemoError(f'listen: "{one_line(listen)}": use a form like ":8000" or "127.0.0.1:8000"')
    return parts["host"].strip("[]") or "0.0.0.0", int(parts["port"])  # noqa: S104  (asked for)


async def _guided(engine: Running, scenario: str | None, seconds: float) -> None:
    if scenario is not None:
        _say(f"{scenario}: {SCENARIOS[scenario].sees}")
        return
    while await engine.tour(seconds=seconds, say=_say):
        pass
    _say("the scenario that you chose: the tour ends here")


def _say(text: str) -> None:
    print(f"  now: {text}", flush=True)
