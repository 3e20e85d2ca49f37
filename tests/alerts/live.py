"""A real Prometheus and Alertmanager with the rules at compressed time, and what they notified."""

import asyncio
import json
import shutil
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web
from render import rendered
from rulebook.settings import Settings

from alerts.rulefiles import ALERTS
from edge.waiting import until
from prometheus.server import free_port

ALERTMANAGER = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager") or "alertmanager"
Labels = dict[str, str]


def compressed(
    short: str, long: str, day: str, *, offset: str, settled: str, lasting: str, window: str
) -> dict[str, str]:
    """Return the rules files with shorter ranges and durations, and the thresholds that they ship with."""
    content = yaml.safe_load((ALERTS / "config.yaml").read_text())

    def put(path: str, value: Any) -> None:
        *above, key = path.split(".")
        entry = content
        for part in above:
            entry = entry[part]
        assert key in entry, path
        entry[key]["value"] = value

    for name, value in (("5m", short), ("1h", long), ("1d", day)):
        put(f"windows.{name}", value)
    for name in content["intervals"]:
        put(f"intervals.{name}", "1s")
    put("shared.settled_after", settled)
    put("shared.settled_seen", short)
    put("shared.flap", lasting)
    for name in content["alerts"]:
        put(f"alerts.{name}.for", lasting)
    put("alerts.PrefixCacheHitRatioDropped.baseline_offset", offset)
    # A stand-in answers within milliseconds, and computes a prompt in little more than it takes to find it.
    put("alerts.PrefixCacheHitRatioDropped.latency_floor_seconds", 0)
    put("alerts.PrefixCacheHitRatioDropped.latency_rise", 1.2)
    put("alerts.PrefixCacheNoReuse.has_hit_within", "10m")
    put("alerts.PrefixCacheKvPressure.usage_window", window)
    put("alerts.PrefixCacheEngineUnreachable.seen_within", "10m")
    put("alerts.PrefixCacheExporterDown.seen_within", "10m")
    return rendered(Settings(content, source="compressed"))


@dataclass
class Inbox:
    """What Alertmanager sent, by receiver."""

    notified: list[tuple[str, str, Labels]] = field(default_factory=list)
    url: str = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.add_routes([web.post("/{receiver}", self._take)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        for alert in (await request.json())["alerts"]:
            self.notified.append((request.match_info["receiver"], alert["status"], alert["labels"]))
        return web.Response()

    def said(self, name: str, status: str) -> Iterator[tuple[str, Labels]]:
        return (
            (to, labels) for to, is_now, labels in self.notified if labels["alertname"] == name and is_now == status
        )


def routing(inbox: Inbox) -> dict[str, Any]:
    """Return the Alertmanager configuration that ships, its receivers filled in and its waits short."""
    content: dict[str, Any] = yaml.safe_load((ALERTS / "alertmanager.yaml").read_text())
    for receiver in content["receivers"]:
        receiver["webhook_configs"] = [{"url": f"{inbox.url}/{receiver['name']}", "send_resolved": True}]
    for route in (content["route"], *content["route"]["routes"]):
        route |= {"group_wait": "1s", "group_interval": "1s"}
    return content


@dataclass(frozen=True)
class Server:
    """A process that serves HTTP."""

    url: str
    client: aiohttp.ClientSession

    async def get(self, path: str) -> Any:
        async with self.client.get(f"{self.url}{path}") as response:
            assert response.status == 200, await response.text()
            return json.loads(await response.text())

    async def firing(self) -> list[Labels]:
        """Return the labels of Prometheus's alerts that fire."""
        found = await self.get("/api/v1/alerts")
        return [alert["labels"] for alert in found["data"]["alerts"] if alert["state"] == "firing"]

    async def unhealthy(self) -> list[str]:
        """Return the rules that Prometheus could not evaluate, with what it says."""
        found = await self.get("/api/v1/rules")
        rules = [rule for group in found["data"]["groups"] for rule in group["rules"]]
        return [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] == "err"]

    async def inhibited(self) -> set[tuple[str, str]]:
        """Return name and severity of Alertmanager's alerts that others silence."""
        found = await self.get("/api/v2/alerts")
        return {
            (one["labels"]["alertname"], one["labels"].get("severity", ""))
            for one in found
            if one["status"]["inhibitedBy"]
        }

    async def post(self, path: str, body: Any) -> None:
        async with self.client.post(f"{self.url}{path}", json=body) as response:
            assert response.status == 200, await response.text()


@asynccontextmanager
async def serving(command: Sequence[str], url: str, log: Path) -> AsyncIterator[Server]:
    """Run a server until the block is left; it is ready when the block begins."""
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=stream, cwd=log.parent)
    try:
        async with aiohttp.ClientSession() as client:

            async def is_ready() -> bool:
                assert process.returncode is None, log.read_text()[-2000:]  # noqa: ASYNC240
                try:
                    async with client.get(f"{url}/-/ready") as response:
                        return response.status == 200
                except aiohttp.ClientError:
                    return False

            await until(is_ready, seconds=40)
            yield Server(url, client)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def alertmanager(folder: Path, inbox: Inbox) -> AsyncIterator[Server]:
    config, url = folder / "alertmanager.yaml", f"http://127.0.0.1:{free_port()}"
    config.write_text(json.dumps(routing(inbox)))
    command = [
        ALERTMANAGER, f"--config.file={config}", f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={url.removeprefix('http://')}", "--cluster.listen-address=",
    ]  # fmt: skip
    async with serving(command, url, folder / "alertmanager.log") as server:
        yield server


@asynccontextmanager
async def monitored(
    folder: Path, rules: Mapping[str, str], exporters: Mapping[str, str], alerts_to: Server, *, interval: str = "1s"
) -> AsyncIterator[Server]:
    """Run a Prometheus that scrapes exporters (job to host:port) and evaluates the rules each second."""
    for name, text in rules.items():
        (folder / name).write_text(text)
    shipped = yaml.safe_load((ALERTS / "prometheus.yaml").read_text())
    (job,) = (one for one in shipped["scrape_configs"] if one["job_name"] == "prefixwatch")
    settings = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": "1s"},
        "rule_files": shipped["rule_files"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerts_to.url.removeprefix("http://")]}]}]},
        "scrape_configs": [
            {**job, "job_name": name, "static_configs": [{"targets": [place]}]} for name, place in exporters.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(json.dumps(settings))
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        "prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}", "--rules.alert.resend-delay=1s",
    ]  # fmt: skip
    async with serving(command, url, folder / "prometheus.log") as server:
        yield server
