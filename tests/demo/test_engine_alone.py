"""`prefixwatch engine`: the stand-in on the network, without the exporter."""

import asyncio
import re
import signal

import aiohttp
import pytest

from edge.commands import ended, run, started


async def test_it_serves_until_it_is_told_to_stop() -> None:
    process = await started("engine", "caching_disabled", "--listen", "127.0.0.1:0", "--release", "0.16.0")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            hello = (await process.stdout.readline()).decode()
            now = (await process.stdout.readline()).decode()
            url = re.search(r"http://127\.0\.0\.1:\d+/metrics", hello)
            assert url is not None
            async with aiohttp.ClientSession() as client, client.get(url[0]) as answer:
                page = await answer.text()
    finally:
        process.send_signal(signal.SIGTERM)
        done = await ended(process)
    assert (
        now == "  now: caching_disabled: Prefix caching is off: nothing is looked up, and the ratio is absent, not 0.\n"
    )
    assert "vllm:prompt_tokens_total" in page
    assert (done.code, done.err) == (0, "")


async def test_without_a_scenario_it_tours() -> None:
    process = await started("engine", "--listen", "127.0.0.1:0", "--tour", "100ms")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            lines = [(await process.stdout.readline()).decode() for _ in range(3)]
    finally:
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    assert [line.split(":")[1].strip() for line in lines[1:]] == ["healthy", "template_change"]
    assert done.code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--listen", "8000"), 'listen: "8000": use a form like ":8000" or "127.0.0.1:8000"', id="no colon"),
        pytest.param(("--listen", "a:70000"), 'listen: "a:70000": use a form', id="no such port"),
        pytest.param(("--listen", "::1:80"), 'listen: "::1:80": use a form', id="IPv6 without brackets"),
        pytest.param(("--listen", "192.0.2.1:0"), "port 0 on 192.0.2.1 cannot be bound", id="not an address of this host"),
        pytest.param(("nothing",), "nothing", id="no such scenario"),
    ],
)  # fmt: skip
async def test_what_it_refuses_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = await run("engine", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"prefixwatch: {said}") or said in done.err
    assert done.err.count("\n") == 1
