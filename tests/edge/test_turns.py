"""Pollers take turns, so that sockets are read while there is work; a large page keeps nobody waiting."""

import asyncio
import threading

import pytest

from edge.engines import trace
from prefixwatch.config import Config
from prefixwatch.discovery import Target
from prefixwatch.fetch import Address, Body
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.poller import LARGE_PAGE, TargetPoller, watch_of

COUNT = 5
PAGE = trace("healthy")[0][1]
PADDING = b"# " + bytes(98).replace(b"\0", b"-") + b"\n"
LARGE = PAGE + PADDING * (LARGE_PAGE // len(PADDING) + 1)


class ReadyPages:
    """A fetcher whose pages are all there at once."""

    def __init__(self, content: bytes = PAGE) -> None:
        self._content = content

    async def page(self, _: Address) -> Body:
        return Body(content=self._content, is_openmetrics=False)

    async def release(self, _: Address) -> None:
        return None


def poller(name: str, fetcher: ReadyPages, reader: PageReader, turn: asyncio.Lock) -> TargetPoller:
    config = Config()
    target = Target(name=name, address=Address(url="http://t"), labels={})
    return TargetPoller(
        target, config, fetcher, reader,
        watch=watch_of(target, config), spans=config.windows, clock=lambda: 1_795_984_200.0, turn=turn,
    )  # fmt: skip


async def test_one_page_a_round_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, worked_in = 0, []
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(count)

    original = TargetPoller._interpreted

    def noted(self: TargetPoller, reader: PageReader, body: Body, started: float):
        worked_in.append(rounds)
        return original(self, reader, body, started)

    monkeypatch.setattr(TargetPoller, "_interpreted", noted)
    turn, reader = asyncio.Lock(), PageReader(is_wanted)
    pollers = [poller(f"t{n}", ReadyPages(), reader, turn) for n in range(COUNT)]
    count()
    await asyncio.gather(*(one.poll() for one in pollers))
    assert len(set(worked_in)) == COUNT
    assert all(one.status.is_up for one in pollers)


async def test_others_are_polled_while_a_large_page_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    others_are_done = threading.Event()
    original = TargetPoller._interpreted
    readers = []

    def waiting(self: TargetPoller, reader: PageReader, body: Body, started: float):
        readers.append(reader)
        if len(body.content) > LARGE_PAGE:
            assert others_are_done.wait(timeout=10)
        return original(self, reader, body, started)

    monkeypatch.setattr(TargetPoller, "_interpreted", waiting)
    turn, shared = asyncio.Lock(), PageReader(is_wanted)
    large, other = poller("large", ReadyPages(LARGE), shared, turn), poller("other", ReadyPages(), shared, turn)
    reading_large = asyncio.create_task(large.poll())
    await other.poll()
    others_are_done.set()
    await reading_large
    assert (large.status.is_up, other.status.is_up) == (True, True)
    assert large.status.state.engines[0].reading == other.status.state.engines[0].reading
    assert sum(reader is shared for reader in readers) == 1, "the shared reader is for one thread"
