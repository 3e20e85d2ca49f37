"""A real Prometheus on a free port, in a folder of its own."""

import asyncio
import json
import socket
import subprocess
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from edge.waiting import until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def backfill(openmetrics: str, folder: Path) -> None:
    """Write samples with their own timestamps into a database that Prometheus then serves."""
    source = folder / "samples.om"
    source.write_text(openmetrics)
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", source, folder / "data"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Prometheus:
    """Ask a running server."""

    url: str
    client: aiohttp.ClientSession

    async def vector(self, query: str, *, time: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Return (labels, value) of each series of an instant query."""
        parameters = {"query": query, **({} if time is None else {"time": f"{time:.3f}"})}
        async with self.client.get(f"{self.url}/api/v1/query", params=parameters) as response:
            answer = json.loads(await response.text())
        assert answer["status"] == "success", answer
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    async def value(self, query: str, *, time: float | None = None) -> float | None:
        """Return the value of the one series, None where there is none."""
        found = await self.vector(query, time=time)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    async def raw(self, selector: str) -> list[float]:
        """Return the values of the one series, if there is one, as they were scraped; `selector` ends in a range."""
        async with self.client.get(f"{self.url}/api/v1/query", params={"query": selector}) as response:
            answer = json.loads(await response.text())
        assert len(answer["data"]["result"]) <= 1, answer
        return [float(value) for one in answer["data"]["result"] for _, value in one["values"]]


@asynccontextmanager
async def prometheus(
    folder: Path,
    jobs: Mapping[str, str] | None = None,
    *,
    scrapes: Sequence[Mapping[str, Any]] = (),
    rules: Sequence[Path] = (),
) -> AsyncIterator[Prometheus]:
    """Run a server that scrapes `jobs` (name to host:port) each second, and what `scrapes` configures in full.

    `rules` are files of rules that it evaluates.
    """
    plain = [{"job_name": name, "static_configs": [{"targets": [place]}]} for name, place in (jobs or {}).items()]
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [*plain, *scrapes],
        "rule_files": [str(file) for file in rules],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
    url, log = f"http://127.0.0.1:{free_port()}", folder / "prometheus.log"
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}", "--storage.tsdb.retention.time=100y",
            stdout=DEVNULL, stderr=stream,
        )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as client:

            async def is_ready() -> bool:
                assert process.returncode is None, log.read_text()[-2000:]
                try:
                    async with client.get(f"{url}/-/ready") as response:
                        return response.status == 200
                except aiohttp.ClientError:
                    return False

            await until(is_ready)
            yield Prometheus(url, client)
    finally:
        process.kill()
        await process.wait()
