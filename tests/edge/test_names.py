"""Lookups hang; nothing else may."""

import asyncio
import socket
import threading
import time

import pytest

from edge.waiting import until
from prefixwatch.names import AT_ONCE, Names


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch):
    """Lookups hang until it is set."""
    gate = threading.Event()
    running: list[str] = []

    def lookup(host: str, port: int, **_: object) -> list[object]:
        running.append(host)
        gate.wait(30)
        return [(socket.AF_INET6, 1, 6, "", ("fe80::1", port, 0, 3)), (socket.AF_INET, 1, 6, "", ("10.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    gate.running = running
    yield gate
    gate.set()


def test_the_end_of_the_process_waits_for_no_lookup(gate) -> None:
    async def main() -> None:
        names = Names()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(names.addresses("a", 1), 0.05)
        await names.close()

    before = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - before < 5
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "lookup":
            thread.join(10)  # and one that ends after its loop raises nothing


async def test_askers_share_a_lookup_and_one_that_gives_up_does_not_end_it(gate) -> None:
    names = Names()
    first, second = (asyncio.create_task(names.addresses("a", 1)) for _ in range(2))
    await until(lambda: gate.running)
    first.cancel()
    gate.set()
    assert await second == [(socket.AF_INET6, "fe80::1%3"), (socket.AF_INET, "10.0.0.1")]
    assert gate.running == ["a"]
    assert [found["host"] for found in await names.resolve("a", 1)] == ["fe80::1%3", "10.0.0.1"]


async def test_only_so_many_run_at_once_and_the_rest_follow(gate) -> None:
    names = Names()
    asked = [asyncio.create_task(names.addresses(f"n{i}", 1)) for i in range(AT_ONCE + 5)]
    await until(lambda: len(gate.running) == AT_ONCE)
    gate.set()
    assert all(await asyncio.gather(*asked))
    assert len(gate.running) == AT_ONCE + 5
