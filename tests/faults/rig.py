"""A real exporter in a process of its own, beside one fake engine a fault: before, during and after it."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from edge.commands import exporter
from edge.engines import Engine, counter, of_process, trace
from edge.waiting import until
from faults.table import Fault

BORN = float(int(time.time()) - 1000)
PAGES = tuple(of_process(page, BORN) for _, page in trace("healthy"))[5:60]
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
WINDOW = "2s"
POLLS = 3
CONFIG = """\
poll_interval: 500ms
poll_timeout: {timeout}ms
max_backoff: 500ms
forget_after: 1s
discovery_interval: 200ms
windows: [2s]
"""
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Scrape:
    """What /metrics had of one target at one moment."""

    samples: dict[tuple[str, Labels], float]

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of the samples of that name (without prefix) that have these labels."""
        return [
            value
            for (sample, others), value in self.samples.items()
            if sample == f"prefixwatch_{name}" and labels.items() <= dict(others).items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the one such sample, None where there is none."""
        found = self.values(name, **labels)
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def engines(self) -> set[str]:
        """The names of the models of which there is anything."""
        return {dict(labels)["model_name"] for _, labels in self.samples if "model_name" in dict(labels)}


@dataclass
class Patient:
    """One engine, its fault, and what was exported of it. `faulty`: how often it answered with its fault."""

    fault: Fault
    engine: Engine
    scrapes: list[Scrape] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    faulty: int = 0
    is_ill: bool = False
    _next: int = 0

    def __post_init__(self) -> None:
        self.engine.answer = self.answer

    async def answer(self, engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        """Answer as the engine's state is."""
        if self.is_ill and self.fault.answer is not None:
            self.faulty += 1
            return await self.fault.answer(engine, request)
        return await self._play(engine)

    async def _play(self, engine: Engine) -> web.StreamResponse:
        """Answer with the next page of a real vLLM."""
        engine.page = PAGES[min(self._next, len(PAGES) - 1)]
        self._next += 1
        engine.played.append(engine.page)
        return web.Response(body=engine.page, content_type="text/plain")

    async def fall_ill(self) -> None:
        self.is_ill = True
        if self.fault.answer is None:
            await self.engine.stop()

    async def recover(self) -> None:
        self.is_ill = False
        if self.fault.answer is None:
            await self.engine.start()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.engine.port}"

    def stated(self, name: str) -> set[float]:
        """Return the values of a counter on the pages that were given."""
        return {counter(page, name) for page in self.engine.played}

    def ratios(self) -> Iterator[float]:
        """Yield the token hit ratio from each good page to each later one."""
        values = [(counter(page, HITS), counter(page, QUERIES)) for page in dict.fromkeys(self.engine.played)]
        for position, (hits, queries) in enumerate(values):
            for later_hits, later_queries in values[position + 1 :]:
                if later_queries > queries:
                    yield (later_hits - hits) / (later_queries - queries)


@dataclass
class Ward:
    """All of them at one exporter. `peak`: the most memory it had, in megabytes."""

    patients: list[Patient]
    peak: float = 0.0
    seconds_to_end: float = 0.0
    status: int | None = None
    log: str = ""
    slowest_scrape: float = 0.0


async def observe(faults: tuple[Fault, ...], folder: Path) -> Ward:
    """Let all engines be well, then ill, then well again, and look at what is exported all the time."""
    is_heavy = any(fault.is_heavy for fault in faults)
    (folder / "config.yaml").write_text(CONFIG.format(timeout=10_000 if is_heavy else 2000))
    async with AsyncExitStack() as stack:
        ward = Ward([Patient(fault, await stack.enter_async_context(Engine())) for fault in faults])
        urls = [patient.engine.url for patient in ward.patients]
        client = await stack.enter_async_context(aiohttp.ClientSession())
        running = await stack.enter_async_context(exporter(*urls, "--config", folder / "config.yaml"))

        async def all_of(condition: Callable[[Patient], bool]) -> None:
            async def met() -> bool:
                await asyncio.sleep(0.1)
                await _scrape(ward, client, running.url)
                return all(condition(patient) for patient in ward.patients)

            await until(met, seconds=60)

        await all_of(lambda one: one.scrapes[-1].value("token_hit_ratio", window=WINDOW) is not None)
        for patient in ward.patients:
            await patient.fall_ill()
        await all_of(_is_ill_enough)
        await _errors(ward, client, running.url)
        for patient in ward.patients:
            await patient.recover()
        given = {patient.target: len(patient.engine.played) for patient in ward.patients}
        await all_of(lambda one: len(one.engine.played) >= given[one.target] + 3)
        await all_of(lambda one: one.scrapes[-1].value("up") == one.fault.passes)
        ward.peak = _peak(running.process.pid)
        before = time.monotonic()
        running.process.terminate()
        _, log = await running.process.communicate()
        ward.seconds_to_end, ward.status, ward.log = time.monotonic() - before, running.process.returncode, log.decode()
        _logged_errors(ward)
    return ward


def _is_ill_enough(one: Patient) -> bool:
    """Say whether a fault was met by three polls."""
    return max(one.faulty, sum(one.scrapes[-1].values("poll_errors_total"))) > POLLS


async def _scrape(ward: Ward, client: aiohttp.ClientSession, url: str) -> None:
    before = time.monotonic()
    async with client.get(f"{url}/metrics") as response:
        assert response.status == 200
        text = await response.text()
    ward.slowest_scrape = max(ward.slowest_scrape, time.monotonic() - before)
    samples: dict[str, dict[tuple[str, Labels], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            of_target = samples.setdefault(sample.labels.get("target", ""), {})
            of_target[sample.name, frozenset(sample.labels.items())] = sample.value
    for patient in ward.patients:
        patient.scrapes.append(Scrape(samples.get(patient.target, {})))


async def _errors(ward: Ward, client: aiohttp.ClientSession, url: str) -> None:
    async with client.get(f"{url}/api/v1/status") as response:
        targets = {one["target"]: one for one in (await response.json())["targets"]}
    for patient in ward.patients:
        patient.errors.append(targets[patient.target].get("error", ""))


def _logged_errors(ward: Ward) -> None:
    for line in ward.log.splitlines():
        entry = json.loads(line)
        for patient in ward.patients:
            if entry.get("target") == patient.target and "error" in entry:
                patient.errors.append(entry["error"])


def _peak(pid: int) -> float:
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) / 1024
