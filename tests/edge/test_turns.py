"""Pollers take turns, so that sockets are read while there is work; a large page keeps nobody waiting."""

import asyncio
import threading
from collections import Counter

import pytest

from edge.engines import trace
from prefixwatch.config import Config
from prefixwatch.discovery import Target
from prefixwatch.fetch import Address, Body
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.targetpoller import LARGE_PAGE, TargetPoller, watch_of
from prefixwatch.turns import SLICE, Turns

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


def poller(name: str, fetcher: ReadyPages, reader: PageReader, turns: Turns) -> TargetPoller:
    config = Config()
    target = Target(name=name, address=Address(url="http://t"), labels={})
    return TargetPoller(
        target, config, fetcher, reader,
        watch=watch_of(target, config), spans=config.windows, clock=lambda: 1_795_984_200.0, turns=turns,
    )  # fmt: skip


async def test_the_loop_makes_a_round_after_each_slice_of_work() -> None:
    rounds, seconds, worked_in = 0, 0.0, []
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(count)

    def work() -> None:
        nonlocal seconds
        seconds += SLICE / 2
        worked_in.append(rounds)

    count()
    turns = Turns(clock=lambda: seconds)
    await asyncio.gather(*(turns.do(work) for _ in range(2 * COUNT)))
    assert len(worked_in) == 2 * COUNT
    assert worked_in[0] == worked_in[1], "little work needs no round of its own"
    assert max(Counter(worked_in).values()) == 2


async def test_work_that_fails_gives_up_its_turn() -> None:
    turns = Turns()

    def broken() -> None:
        raise ZeroDivisionError

    results = await asyncio.gather(turns.do(broken), turns.do(lambda: 1), return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError, int]


async def test_a_page_is_worked_on_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, done = Turns(), []
    monkeypatch.setattr(turns, "do", lambda work: done.append(work) or Turns().do(work))
    one = poller("t", ReadyPages(), PageReader(is_wanted), turns)
    await one.poll()
    assert one.status.is_up
    assert len(done) == 1


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
    turns, shared = Turns(), PageReader(is_wanted)
    large, other = poller("large", ReadyPages(LARGE), shared, turns), poller("other", ReadyPages(), shared, turns)
    reading_large = asyncio.create_task(large.poll())
    await other.poll()
    others_are_done.set()
    await reading_large
    assert (large.status.is_up, other.status.is_up) == (True, True)
    assert large.status.state.engines[0].reading == other.status.state.engines[0].reading
    assert sum(reader is shared for reader in readers) == 1, "the shared reader is for one thread"
