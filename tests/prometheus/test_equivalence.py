"""The exporter and a real Prometheus agree: on windows, and on what a restart is."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web

from edge.commands import exporter
from edge.engines import Answer, Engine, counter, of_process, trace
from edge.polled import Polled
from edge.waiting import until
from prefixwatch.config import Config
from prometheus.server import Prometheus, backfill, free_port, prometheus
from prometheus.timeline import Timeline

START = 1_795_984_000.0
LONG = (
    "healthy", "template_change", "divergent", "mixed_long_warm", "short_prompts",
    "salted", "healthy", "thrash_low_usage", "mid_variable", "healthy",
)  # fmt: skip


@pytest.mark.parametrize(
    ("restarts", "interval", "tolerance"),
    [
        pytest.param((), 2, 0.01, id="without a restart"),
        pytest.param((6,), 2, 0.01, id="with a restart"),
        pytest.param((5, 6, 8), 2, 0.01, id="with several"),
        # Prometheus leaves out what lies between the window's start and the first sample in it: up
        # to 5 s of these 300, while the ratio goes from one extreme to the other.
        pytest.param((5, 6, 8), 5, 5 / 300, id="with several, rarely read"),
    ],
)
async def test_the_ratio_of_five_minutes_is_prometheus_own(
    tmp_path: Path, restarts: tuple[int, ...], interval: int, tolerance: float
) -> None:
    """Both see the same pages at the same times."""
    timeline = Timeline(traces=LONG, start=START, restarts=frozenset(restarts))
    seen = list(timeline.pages())[::interval]
    ours: dict[float, float] = {}
    async with Engine() as engine, Polled(engine, Config(), name="tiny") as polled:
        for at, page in seen:
            await polled.play([(at, page)])
            ratio = polled.value("token_hit_ratio", window="5m")
            if ratio is not None:
                ours[at] = ratio
    assert len(ours) > 60, "more than five minutes of windows"

    await asyncio.to_thread(backfill, _samples(seen), tmp_path)
    query = "rate(hits_total[5m]) / rate(queries_total[5m])"
    async with prometheus(tmp_path) as server:
        differences = {}
        for at, ratio in ours.items():
            theirs = await server.value(query, time=at)
            assert theirs is not None
            differences[at] = abs(theirs - ratio)
    worst = max(differences, key=differences.__getitem__)
    assert differences[worst] < tolerance, f"at {worst - START:.0f} s: {ours[worst]:.4f}"
    assert max(ours.values()) - min(ours.values()) > 0.1, "the trace must be one where a wrong window shows"


def _samples(seen: list[tuple[float, bytes]]) -> str:
    lines = []
    for name, source in (("hits", "vllm:prefix_cache_hits_total"), ("queries", "vllm:prefix_cache_queries_total")):
        lines.append(f"# TYPE {name} counter")
        lines += [f"{name}_total {counter(page, source)} {at:.3f}" for at, page in seen]
    return "\n".join([*lines, "# EOF\n"])


PAGES = [page for _, page in trace("healthy")]
QUERIES = "vllm:prefix_cache_queries_total"
OURS = 'prefixwatch_queried_tokens_total{job="exporter"}'
THEIRS = f'{QUERIES}{{job="engine"}}'
RANGE = "[5m]"


def ticking(pages: Sequence[bytes], *, started: float) -> Answer:
    """Answer with the page of the moment, two a second, as a process that started then."""
    begin = time.monotonic()
    own = [of_process(page, started) for page in pages]

    async def answer(engine: Engine, request: web.BaseRequest) -> web.Response:
        return web.Response(body=own[min(int((time.monotonic() - begin) * 2), len(own) - 1)])

    return answer


async def test_restarts_under_a_real_prometheus(tmp_path: Path) -> None:
    """An exporter that is killed and started again is no reset; an engine that is killed is one."""
    listen, settings = f"127.0.0.1:{free_port()}", ("--poll-interval", "0.2s", "--window", "1m")
    born = float(int(time.time()) - 1000)
    async with Engine(answer=ticking(PAGES[5:], started=born)) as engine:
        jobs = {"exporter": listen, "engine": f"127.0.0.1:{engine.port}"}
        async with prometheus(tmp_path, jobs) as server:
            async with exporter(engine.url, *settings, listen=listen) as running:
                first = await scrapes_of(server, OURS, more_than=4)
                running.process.kill()
                await running.process.wait()

            async with exporter(engine.url, *settings, listen=listen):
                values = await scrapes_of(server, OURS, more_than=len(first) + 4)
                assert await server.value(f"resets({OURS}{RANGE})") == 0
                assert values == sorted(values)
                assert set(values) <= stated(PAGES[5:]), "each is one that the engine stated"
                counted = values[-1] - values[0]
                assert counted > 0
                increase = await server.value(f"increase({OURS}{RANGE})")
                # Prometheus extrapolates to both sides, by little more than an interval each. A reset
                # would have added the whole of one of the values.
                assert 0 <= increase - counted < min(2.5 / len(values) * counted, values[0]), "no false increase"
                assert set(await server.raw(f"{OURS.replace('_total', '_created')}{RANGE}")) == {born}

                await engine.stop()
                await until(lambda: is_value(server, 'prefixwatch_up{job="exporter"}', 0))
                engine.answer = ticking(PAGES, started=time.time())
                await engine.start()
                await until(lambda: is_value(server, 'prefixwatch_engine_restarts_total{job="exporter"}', 1))
                values = await scrapes_of(server, OURS, more_than=len(values) + 3)
                assert await server.value(f"resets({OURS}{RANGE})") == 1
                assert await server.value(f"resets({THEIRS}{RANGE})") == 1
                (fall,) = (i for i in range(1, len(values)) if values[i] < values[i - 1])
                assert set(values[fall:]) <= stated(PAGES)


def stated(pages: Sequence[bytes]) -> set[float]:
    return {counter(page, QUERIES) for page in pages}


async def scrapes_of(server: Prometheus, series: str, *, more_than: int) -> list[float]:
    """Return the values that were scraped of a series, once there are more than that many."""

    async def enough() -> list[float] | None:
        values = await server.raw(f"{series}{RANGE}")
        return values if len(values) > more_than else None

    return await until(enough, seconds=40)


async def is_value(server: Prometheus, query: str, value: float) -> bool:
    return await server.value(query) == value
