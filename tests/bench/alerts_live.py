"""Every alert on a real Prometheus and Alertmanager: on its cause, and back.

    python tests/bench/alerts_live.py [--speed 2] [--healthy 150]

Stand-in engines behind two exporters, all rules at compressed time: 5 minutes are 10 s, an hour is 30 s, a day 300 s. First
healthy traffic, in which nothing may fire; then each engine gets its cause; then all are mended. Prints when each alert
fired and resolved; exits 1 where one did not, or fired without its cause.
"""

import argparse
import asyncio
import logging
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "exporter"), str(ROOT / "tests"), str(ROOT / "alerts")]

from alerts.live import Inbox, Server, alertmanager, compressed, monitored  # noqa: E402
from edge.commands import exporter  # noqa: E402
from prefixwatch.demo.server import Running, serve  # noqa: E402
from prometheus.server import free_port  # noqa: E402

CAUSES = {
    "dropped": "mid_variable",
    "none": "divergent",
    "evicting": "thrash_low_usage",
    "pressure": "pressure",
    "disabled": "caching_disabled",
    "gap": "mixed_long_warm",
    "replicas": "divergent",
}
"""Model names, and the scenario that each goes over to."""

EXPECTED = {
    ("PrefixCacheHitRatioDropped", "dropped"), ("PrefixCacheNoReuse", "none"),
    ("PrefixCacheEvictingReusedBlocks", "evicting"), ("PrefixCacheKvPressure", "pressure"),
    ("PrefixCacheDisabled", "disabled"), ("PrefixCacheTokenRequestGap", "gap"),
    ("PrefixCacheReplicaImbalance", "replicas"), ("PrefixCacheCountersFrozen", "frozen"),
    ("PrefixCacheEngineUnreachable", "gone"), ("PrefixCacheExporterDown", "second"),
}  # fmt: skip

ALSO = {
    ("PrefixCacheHitRatioDropped", "none"), ("PrefixCacheHitRatioDropped", "replicas"),
    ("PrefixCacheHitRatioDropped", "evicting"), ("PrefixCacheHitRatioDropped", "pressure"),
    ("PrefixCacheEvictingReusedBlocks", "pressure"), ("PrefixCacheKvPressure", "evicting"),
    ("PrefixCacheHitRatioDropped", "gap"),
}  # fmt: skip
"""What these causes bring along, and is true."""

POLLING = ("--poll-interval", "0.5s", "--window", "10s", "--window", "30s")
PATIENCE = 150.0
SEEDS = {"pressure": 5, "gap": 4}
"""Of stand-ins whose seed decides how strong the effect is."""
HELD = {"PREFIXWATCH_DIAGNOSIS_HOLD": "2s"}
_LOOKUPS = re.compile(rb"(?m)^(vllm:prefix_cache_(?:queries|hits)_total\{.*\}) \S+$")


class FrozenProxy:
    """Pass an engine's page on; while `is_frozen`, with the lookups that it had then."""

    def __init__(self, origin: str) -> None:
        self._origin, self.is_frozen = origin, False
        self._last: dict[bytes, bytes] = {}
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator["FrozenProxy"]:
        app = web.Application()
        app.add_routes([web.get("/{path}", self._pass)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as self._client:
            try:
                yield self
            finally:
                await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.Response:
        async with self._client.get(f"{self._origin}/{request.match_info['path']}") as response:
            body = await response.read()
        if not self.is_frozen:
            self._last = {found[1]: found[0] for found in _LOOKUPS.finditer(body)}
        return web.Response(body=_LOOKUPS.sub(lambda found: self._last.get(found[1], found[0]), body))


class Journal:
    """When each (alert, model, target or job) began and ceased to fire, as Prometheus says."""

    def __init__(self, server: Server, names: dict[str, str]) -> None:
        self._server, self._names = server, names
        self.began: dict[tuple[str, str], float] = {}
        self.ended: dict[tuple[str, str], float] = {}
        self.tiers: set[tuple[str, str, str]] = set()

    async def look(self) -> set[tuple[str, str]]:
        now, firing = time.monotonic(), set()
        for labels in await self._server.firing():
            whose = labels.get("model_name") or self._names.get(labels.get("target", "")) or labels.get("job", "?")
            firing.add((labels["alertname"], whose))
            self.tiers.add((labels["alertname"], whose, labels["severity"]))
        for key in firing:
            self.began.setdefault(key, now)
            self.ended.pop(key, None)
        for key in self.began.keys() - firing:
            self.ended.setdefault(key, now)
        return firing

    async def until_settled(
        self, seconds: float, *, wanted: Iterable[tuple[str, str]] = (), gone: bool = False
    ) -> None:
        """Look until all wanted ones have fired (or with `gone`, none fires), or time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            firing = await self.look()
            if (gone and not firing) or (wanted and set(wanted) <= self.began.keys()):
                return
            await asyncio.sleep(0.5)


def place(url: str) -> str:
    return urlsplit(url).netloc


async def engines(stack: AsyncExitStack, speed: float) -> dict[str, list[Running]]:
    """Start the stand-ins, by model."""
    models = [*CAUSES, "frozen", "gone"]
    started = {name: [await stack.enter_async_context(serve_of(name, speed, SEEDS.get(name, 1)))] for name in models}
    started["replicas"].append(await stack.enter_async_context(serve_of("replicas", speed, 99)))
    return started


@asynccontextmanager
async def serve_of(name: str, speed: float, seed: int, port: int = 0) -> AsyncIterator[Running]:
    running = await serve("healthy", speed=speed, seed=seed, model_name=name, port=port)
    try:
        yield running
    finally:
        await running.close()


async def run(speed: float, healthy: float) -> int:
    rules = compressed("10s", "30s", "300s", offset="60s", settled="30s", lasting="6s", window="10s")
    second = f"127.0.0.1:{free_port()}"
    async with AsyncExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="alerts-live-", ignore_cleanup_errors=True))
        )
        models = await engines(stack, speed)
        proxy = await stack.enter_async_context(FrozenProxy(models["frozen"][0].url).open())
        urls = [one.url for name, many in models.items() for one in many if name != "frozen"] + [proxy.url]
        inbox = await stack.enter_async_context(Inbox())
        first = await stack.enter_async_context(exporter(*urls, *POLLING, env=HELD))
        # The second watches one engine that the first watches too.
        twin = AsyncExitStack()
        await twin.enter_async_context(exporter(models["dropped"][0].url, *POLLING, listen=second, env=HELD))
        stack.push_async_callback(twin.aclose)
        manager = await stack.enter_async_context(alertmanager(folder, inbox))
        jobs = {"first": place(first.url), "second": second}
        server = await stack.enter_async_context(monitored(folder, rules, jobs, manager, interval="2s"))
        journal = Journal(server, {place(models["gone"][0].url): "gone"})

        begin = time.monotonic()
        print(f"healthy traffic for {healthy:g} s ({healthy / 30:.1f} times what stands for an hour)", flush=True)
        await journal.until_settled(healthy)
        early = set(journal.began)
        print(f"  fired: {sorted(early) or 'nothing'}", flush=True)

        caused = time.monotonic()
        print("each engine gets its cause", flush=True)
        for name, scenario in CAUSES.items():
            models[name][-1].switch(scenario)
        proxy.is_frozen = True
        port = urlsplit(models["gone"][0].url).port or 0
        await models["gone"][0].close()
        await twin.aclose()
        await journal.until_settled(PATIENCE, wanted=EXPECTED)
        inhibited = await manager.inhibited()

        mended = time.monotonic()
        print("all are mended", flush=True)
        for name in CAUSES:
            models[name][-1].switch("healthy")
        proxy.is_frozen = False
        await stack.enter_async_context(serve_of("gone", speed, 7, port))
        await stack.enter_async_context(exporter(models["dropped"][0].url, *POLLING, listen=second, env=HELD))
        await journal.until_settled(PATIENCE, gone=True)
        await asyncio.sleep(3)
        faults = await server.unhealthy()
        return report(journal, inbox, early, inhibited, faults, caused=caused, mended=mended, begin=begin)


def report(
    journal: Journal, inbox: Inbox, early: set[tuple[str, str]], inhibited: set[tuple[str, str]], faults: list[str],
    *, caused: float, mended: float, begin: float,
) -> int:  # fmt: skip
    """Print what happened; return the exit status."""
    failed = False
    print(f"\n{'alert':34} {'of':10} {'fired after':>12} {'resolved after':>15}  notified")
    for key in sorted(EXPECTED | journal.began.keys()):
        name, whose = key
        began, ended = journal.began.get(key), journal.ended.get(key)
        mark = "" if key in EXPECTED else "with it" if key in ALSO else "UNEXPECTED"
        sent = {status for _, status, labels in inbox.notified if labels["alertname"] == name}
        failed |= began is None or ended is None or mark == "UNEXPECTED" or not sent >= {"firing", "resolved"}
        fired = "never" if began is None else f"{began - caused:.0f} s"
        resolved = "never" if ended is None else f"{ended - mended:.0f} s"
        print(f"{name:34} {whose:10} {fired:>12} {resolved:>15}  {'/'.join(sorted(sent)):16} {mark}")
    print(f"\ntiers of PrefixCacheHitRatioDropped: {sorted({(w, s) for n, w, s in journal.tiers if 'Dropped' in n})}")
    print(f"silenced in Alertmanager: {sorted(inhibited)}")
    print(f"rules that could not be evaluated: {faults or 'none'}")
    print(f"{time.monotonic() - begin:.0f} s in all")
    return 1 if failed or early or faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", type=float, default=2.0, help="engine seconds a wall second")
    parser.add_argument("--healthy", type=float, default=150.0, help="seconds of healthy traffic")
    arguments = parser.parse_args()
    logging.basicConfig(level="ERROR")
    return asyncio.run(run(arguments.speed, arguments.healthy))


if __name__ == "__main__":
    sys.exit(main())
