"""The server: vLLM's endpoints, the truth, switching, and a wall clock that drives it."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer

from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.scenarios import SCENARIOS, TOUR, scenario_named
from prefixwatch.demo.server import WallTime, application, serve
from prefixwatch.demo.standin import StandIn

pytestmark = pytest.mark.asyncio

Client = TestClient[aiohttp.web.Request, aiohttp.web.Application]


@pytest.fixture
def standin() -> StandIn:
    """Return a stand-in ten seconds into healthy traffic, in-flight requests finished."""
    made = StandIn(scenario_named("healthy"), seed=11, half_time=5.0, release="0.16.0")
    made.start()
    made.advance(10.0)
    made.stop()
    made.advance(11.0)
    return made


@pytest_asyncio.fixture
async def client(standin: StandIn) -> AsyncIterator[Client]:
    """Return a client of that stand-in, whose time stands still."""
    async with TestClient(TestServer(application(standin))) as made:
        yield made


async def test_metrics_are_text(client: Client, standin: StandIn) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert await answer.read() == standin.page()


async def test_version_and_health(client: Client) -> None:
    assert await (await client.get("/version")).json() == {"version": "0.16.0"}
    assert (await client.get("/health")).status == 200


async def test_truth_states_requests_and_evictions(client: Client, standin: StandIn) -> None:
    truth = await (await client.get("/truth")).json()
    assert truth["scenario"] == "healthy"
    assert len(truth["requests"]) == len(standin.requests) > 0
    assert set(truth["requests"][0]) == {"t", "sent", "prompt", "cached", "output", "ttft", "latency"}
    assert truth["evictions"] == []


async def test_reset_prefix_cache(client: Client, standin: StandIn) -> None:
    assert await (await client.post("/reset_prefix_cache")).json() == {"success": True}
    standin.start()
    standin.advance(standin.now + 0.011)
    assert standin.in_flight
    assert await (await client.post("/reset_prefix_cache")).json() == {"success": False}
    answer = await client.post("/reset_prefix_cache?reset_running_requests=true")
    assert await answer.json() == {"success": True}


async def test_sleep_and_wake_up(client: Client) -> None:
    assert (await client.post("/sleep?level=3")).status == 400
    await client.post("/sleep?level=2")
    assert 'sleep_state="discard_all"} 1.0' in await (await client.get("/metrics")).text()
    await client.post("/wake_up")
    assert 'sleep_state="awake"} 1.0' in await (await client.get("/metrics")).text()


async def test_scenarios_are_listed_and_switched(client: Client, standin: StandIn) -> None:
    listed = await (await client.get("/scenario")).json()
    assert listed["current"] == "healthy"
    assert [one["name"] for one in listed["scenarios"]] == list(SCENARIOS)
    answer = await client.post("/scenario", json={"scenario": "pressure"})
    assert (await answer.json())["cause"] == "eviction"
    assert standin.scenario.name == "pressure"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param('{"scenario": "nothing"}', "scenario 'nothing' does not exist; use one of", id="unknown"),
        pytest.param("[]", 'the body must be {"scenario": "NAME"}', id="not an object"),
        pytest.param("{", 'the body must be {"scenario": "NAME"}', id="not JSON"),
    ],
)
async def test_a_bad_switch_says_what_is_wrong(client: Client, body: str, message: str) -> None:
    answer = await client.post("/scenario", data=body)
    assert answer.status == 400
    assert message in await answer.text()


async def test_a_restarting_server_does_not_answer_but_tells_the_truth(client: Client, standin: StandIn) -> None:
    standin.switch(scenario_named("restart"))
    standin.advance(standin.now + 6.0)
    assert not standin.is_up
    with pytest.raises(aiohttp.ClientError):
        await client.post("/reset_prefix_cache")
    with pytest.raises(aiohttp.ClientError):
        await client.get("/metrics")
    assert (await client.get("/truth")).status == 200


async def queries(session: aiohttp.ClientSession, url: str) -> float:
    """Return the looked-up tokens that a page states."""
    async with session.get(f"{url}/metrics") as answer:
        rows = (await answer.text()).splitlines()
    return next(float(row.split()[-1]) for row in rows if row.startswith("vllm:prefix_cache_queries_total"))


async def test_the_wall_clock_drives_it() -> None:
    async with await serve("healthy", speed=50.0) as running, aiohttp.ClientSession() as session:
        async with asyncio.timeout(10):
            while await queries(session, running.url) < 5000:
                pass
        running.switch("divergent")
        assert running.standin.scenario.name == "divergent"


async def test_the_tour_says_what_can_be_seen() -> None:
    said: list[str] = []
    async with await serve("healthy") as running:
        await running.tour(seconds=0.0, say=said.append)
    assert [line.partition(":")[0] for line in said] == list(TOUR)


async def test_a_busy_port_is_a_clear_message() -> None:
    async with await serve("idle") as running:
        port = int(running.url.rpartition(":")[2])
        with pytest.raises(DemoError, match=f"port {port} on 127.0.0.1 is in use; use another one"):
            await serve("idle", port=port)


async def test_a_closed_server_has_freed_its_port() -> None:
    running = await serve("idle")
    await running.close()
    async with await serve("idle", port=int(running.url.rpartition(":")[2])) as again:
        assert again.url == running.url


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
async def test_time_must_go_forward(speed: float) -> None:
    with pytest.raises(DemoError, match="must be above 0"):
        await serve("idle", speed=speed)


async def test_lost_time_is_not_caught_up_with() -> None:
    wall = WallTime(epoch=1000.0, speed=4.0)
    assert wall.engine_seconds(0.5) == 2.0
    assert wall.unix(2.0) == 1000.5
    assert wall.engine_seconds(61.0) == 4.0
    assert wall.unix(6.0) == 1061.5
