"""The exporter killed and started again under a real Prometheus: what goes on, what begins anew, what is lost."""

import asyncio
import time
from pathlib import Path

from aiohttp import web

from edge.commands import exporter
from edge.engines import Engine, counter, of_process, playing, trace
from edge.waiting import until
from prometheus.server import Prometheus, free_port, prometheus

PAGES = [page for _, page in trace("healthy")][5:]
REQUESTS = "vllm:request_prompt_tokens_count"
SETTINGS = ("--poll-interval", "0.2s", "--window", "1m")
PASSED_ON = 'prefixwatch_queried_tokens_total{job="exporter"}'
OWN = 'prefixwatch_requests_observed_total{job="exporter"}'
BEGAN = 'prefixwatch_requests_observed_created{job="exporter"}'
PATIENCE = 40


async def above(server: Prometheus, query: str, value: float) -> float | None:
    found = await server.value(query)
    return found if found is not None and found > value else None


async def test_a_killed_exporter_loses_only_what_it_had_counted_since_its_last_scrape(tmp_path: Path) -> None:
    listen, born = f"127.0.0.1:{free_port()}", float(int(time.time()) - 1000)
    async with (
        Engine(answer=playing([of_process(page, born) for page in PAGES])) as engine,
        prometheus(tmp_path, {"exporter": listen}) as server,
    ):
        async with exporter(engine.url, *SETTINGS, listen=listen) as running:
            await until(lambda: above(server, OWN, 20), seconds=PATIENCE)
            began = await server.value(BEGAN)
            running.process.kill()
            await running.process.wait()
        first_life = [counter(page, REQUESTS) for page in engine.played]
        async with exporter(engine.url, *SETTINGS, listen=listen):
            await until(lambda: above(server, f"resets({OWN}[5m])", 0), seconds=PATIENCE)
            await until(lambda: above(server, OWN, 60), seconds=PATIENCE)
            second_life = [counter(page, REQUESTS) for page in engine.played[len(first_life) :]]

            own = await server.raw(f"{OWN}[5m]")
            fall = next(i for i in range(1, len(own)) if own[i] < own[i - 1])
            assert set(own[:fall]) <= {count - first_life[0] for count in first_life}
            assert set(own[fall:]) <= {count - second_life[0] for count in second_life}, "it began at 0"
            assert await server.value(f"resets({OWN}[5m])") == 1
            assert (await server.value(BEGAN) or 0.0) > (began or 0.0)

            assert await server.value(f"resets({PASSED_ON}[5m])") == 0
            passed = await server.raw(f"{PASSED_ON}[5m]")
            assert passed == sorted(passed)
            assert set(passed) <= {counter(page, "vllm:prefix_cache_queries_total") for page in PAGES}
            assert await server.value('prefixwatch_engine_restarts_total{job="exporter"}') == 0


async def test_it_ends_in_time_while_everything_hangs(tmp_path: Path) -> None:
    """A poll that gets no answer, a scrape that is not taken, a name that does not resolve in time."""

    async def hang(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        return await engine.end_of_silence()

    async with Engine(answer=hang) as engine, exporter(engine.url, "--poll-interval", "0.2s") as running:
        await until(lambda: engine.requests)
        host, _, port = running.url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 2000)  # and nothing is read
        await writer.drain()
        before = time.monotonic()
        running.process.terminate()
        await running.process.wait()
        assert time.monotonic() - before < 5
        assert running.process.returncode == 0
        writer.close()
