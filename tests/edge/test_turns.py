"""Pollers take turns, so that sockets are read while there is work."""

import asyncio

import pytest

from edge.engines import trace
from prefixwatch.config import Config
from prefixwatch.discovery import Target
from prefixwatch.fetch import Address, Body
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.poller import TargetPoller, watch_of

COUNT = 5


class ReadyPages:
    """A fetcher whose pages are all there at once."""

    async def page(self, _: Address) -> Body:
        return Body(content=trace("healthy")[0][1], is_openmetrics=False)

    async def release(self, _: Address) -> None:
        return None


async def test_one_page_a_round_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, worked_in = 0, []
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(count)

    original = TargetPoller._state_after

    def noted(self: TargetPoller, body: Body, started: float):
        worked_in.append(rounds)
        return original(self, body, started)

    monkeypatch.setattr(TargetPoller, "_state_after", noted)
    turn, reader, config = asyncio.Lock(), PageReader(is_wanted), Config()
    targets = [Target(name=f"t{n}", address=Address(url="http://t"), labels={}) for n in range(COUNT)]
    pollers = [
        TargetPoller(
            target, config, ReadyPages(), reader,
            watch=watch_of(target, config), spans=config.windows, clock=lambda: 1_795_984_200.0, turn=turn,
        )
        for target in targets
    ]  # fmt: skip
    count()
    await asyncio.gather(*(poller.poll() for poller in pollers))
    assert len(set(worked_in)) == COUNT
    assert all(poller.status.is_up for poller in pollers)
