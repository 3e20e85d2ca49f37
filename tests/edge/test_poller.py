"""Many targets side by side, as discovery finds them: the real loop, at a fast pace."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from edge import engines
from edge.engines import Engine, trace
from edge.waiting import until
from prefixwatch.config import Config, Duration, TargetConfig
from prefixwatch.poller import Poller
from prefixwatch.targetpoller import TargetPoller, TargetStatus
from prefixwatch.web import application

PAGE = trace("healthy")[0][1]
FAST = Config(
    poll_interval=Duration(0.05),
    poll_timeout=Duration(5),
    windows=(Duration(10),),
    diagnosis_window=Duration(10),
    discovery_interval=Duration(0.05),
)


def config_of(*watched: Engine, **changes: object) -> Config:
    return msgspec.structs.replace(FAST, targets=tuple(TargetConfig(url=one.url) for one in watched), **changes)


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Poller]:
    poller = Poller(config)
    task = asyncio.create_task(poller.run())
    try:
        yield poller
    finally:
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled(), task.exception()


def status_of(poller: Poller, engine: Engine) -> TargetStatus | None:
    return next((s for s in poller.statuses if s.state.target == f"127.0.0.1:{engine.port}"), None)


async def test_a_hanging_target_delays_no_other_and_ends_when_told_to() -> None:
    async with Engine(page=PAGE, answer=engines.hang) as hanging, Engine(page=PAGE) as good:
        async with running(config_of(hanging, good, poll_timeout=Duration(60))) as poller:
            await until(lambda: len(good.requests) >= 8)
            assert status_of(poller, good).is_up
            assert status_of(poller, hanging).is_up is None
            assert len(hanging.requests) == 1
            before = time.monotonic()
        assert time.monotonic() - before < 5, "cancelled in the middle of a poll"


async def test_a_fault_inside_one_target_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch, records) -> None:
    original = TargetPoller._poll

    async def broken(self: TargetPoller, started: float) -> None:
        if self.target.name.endswith(f":{ill.port}"):
            raise ZeroDivisionError
        await original(self, started)

    monkeypatch.setattr(TargetPoller, "_poll", broken)
    async with Engine(page=PAGE) as ill, Engine(page=PAGE) as good, running(config_of(ill, good)) as poller:
        await until(lambda: poller.is_ready and status_of(poller, ill).errors.get("internal", 0) >= 3)
        await until(lambda: len(good.requests) >= 5)
        assert status_of(poller, good).is_up
        assert {record.levelno for record in records if record.exc_info} == {logging.ERROR}


async def test_a_fault_inside_discovery_ends_nothing(monkeypatch: pytest.MonkeyPatch, engine: Engine, records) -> None:
    engine.page = PAGE
    async with running(config_of(engine)) as poller:
        await until(lambda: poller.is_ready)

        async def broken() -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(poller.discovery, "targets", broken)
        await until(lambda: any(record.exc_info for record in records))
        polls = len(engine.requests)
        await until(lambda: len(engine.requests) > polls + 2)
        assert status_of(poller, engine).is_up


async def test_polls_spread_over_the_interval_and_stay_spread() -> None:
    drawn: list[tuple[float, float]] = []

    def jitter(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    async with Engine(page=PAGE) as one, Engine(page=PAGE) as two:
        poller = Poller(config_of(one, two), jitter=jitter)
        task = asyncio.create_task(poller.run())
        await until(lambda: poller.is_ready and len(drawn) >= 6)
        task.cancel()
        await asyncio.wait((task,))
    assert drawn[:2] == [(0, 0.05)] * 2, "each starts somewhere in the first interval"
    assert set(drawn[2:]) == {(0.98, 1.02)}


async def test_polls_due_at_almost_the_same_time_begin_together() -> None:
    poller = Poller(msgspec.structs.replace(FAST, poll_interval=Duration(5)))
    beats = [poller._on_beat(1_795_984_200.0 + shift) for shift in (0.02, 0.03, 0.07, 0.08)]
    assert beats == pytest.approx([1_795_984_200.0 + shift for shift in (0.0, 0.05, 0.05, 0.1)], abs=1e-6)


async def test_ready_once_a_round_has_ended_whatever_its_result_and_for_good() -> None:
    async with AsyncExitStack() as stack:
        silent, good = [await stack.enter_async_context(Engine(page=PAGE)) for _ in range(2)]
        silent.answer = engines.hang
        async with running(config_of(silent, good, poll_timeout=Duration(0.3))) as poller:
            assert not poller.is_ready
            await until(lambda: status_of(poller, good) and status_of(poller, good).is_up)
            await until(lambda: poller.is_ready)
            assert status_of(poller, silent).errors == {"timeout": 1}
            poller._reconcile({**{t.target.name: t.target for t in poller._pollers.values()}, **_unpolled()}, None)
            assert poller.is_ready, "a new target does not take it back"


def _unpolled() -> dict[str, object]:
    from prefixwatch.discovery import Target
    from prefixwatch.fetch import Address

    return {"new:1": Target(name="new:1", address=Address(url="http://127.0.0.1:9/"), labels={})}


async def test_lookups_that_hang_hold_up_neither_scrapes_nor_other_targets_nor_the_end(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, aiohttp_client
) -> None:
    """As many hang as the event loop's pool would have threads, and more."""
    engine.page, real, gate, hung = PAGE, socket.getaddrinfo, threading.Event(), []

    def lookup(host: str, *rest: object, **options: object) -> object:
        if str(host).endswith(".gone"):
            hung.append(host)
            gate.wait(30)
        return real(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    gone = [TargetConfig(url=f"http://pod-{i}.gone:8000/metrics") for i in range(60)]
    config = msgspec.structs.replace(FAST, targets=(*gone, TargetConfig(url=engine.url)), poll_timeout=Duration(0.2))
    try:
        client = await aiohttp_client(application(config, Poller(config)))
        await until(lambda: len(engine.requests) > 5)
        await until(lambda: len(hung) >= 32)
        before = time.monotonic()
        text = await (await client.get("/metrics")).text()
        assert f'prefixwatch_up{{target="127.0.0.1:{engine.port}"}} 1.0' in text
        await until(lambda: len(engine.requests) > 20)
        assert len(hung) == len(set(hung)), "a name that is being looked up is not looked up once more"
        await client.close()
        assert time.monotonic() - before < 10
    finally:
        gate.set()


async def test_a_vanished_target_ends_after_a_while_even_if_it_still_answers(tmp_path) -> None:
    file = tmp_path / "targets.yaml"
    async with Engine(page=PAGE) as stays, Engine(page=PAGE) as goes:
        file.write_text(f"- url: {stays.url}\n- url: {goes.url}\n")
        config = config_of(targets_file=str(file), forget_after=Duration(0.3))
        async with running(config) as poller:
            await until(lambda: len(poller.statuses) == 2 and all(s.is_up for s in poller.statuses))
            file.write_text(f"- url: {stays.url}\n")
            await until(lambda: len(poller.statuses) == 1)
            assert status_of(poller, stays).is_up
            polls = len(goes.requests)
            seen = len(stays.requests)
            await until(lambda: len(stays.requests) > seen + 5)
            assert len(goes.requests) <= polls + 1

            file.write_text(f"- url: {stays.url}\n- url: {goes.url}\n")
            await until(lambda: len(poller.statuses) == 2 and all(s.is_up for s in poller.statuses))


async def test_a_target_that_is_back_in_time_keeps_its_history(tmp_path) -> None:
    file = tmp_path / "targets.yaml"
    async with Engine(page=PAGE) as one:
        file.write_text(f"- url: {one.url}\n")
        async with running(config_of(targets_file=str(file), forget_after=Duration(60))) as poller:
            await until(lambda: poller.statuses and poller.statuses[0].is_up)
            began = poller.statuses[0].began
            file.write_text("[]\n")
            await until(lambda: poller._unseen_since)
            file.write_text(f"- url: {one.url}\n# again\n")
            await until(lambda: not poller._unseen_since)
            assert poller.statuses[0].began == began


async def test_changed_labels_begin_anew(tmp_path) -> None:
    file = tmp_path / "targets.yaml"
    async with Engine(page=PAGE) as one:
        file.write_text(f"- url: {one.url}\n")
        async with running(config_of(targets_file=str(file))) as poller:
            await until(lambda: poller.statuses and poller.statuses[0].is_up)
            file.write_text(f"- url: {one.url}\n  labels: {{zone: blue}}\n")
            await until(lambda: poller.statuses[0].state.labels == {"zone": "blue"} and poller.statuses[0].is_up)
