"""Slow, greedy and broken clients: every wait ends, every number is bounded, and others are served meanwhile."""

import asyncio
import gzip
import itertools
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from edge import engines
from edge.certificates import Authority
from edge.commands import ended, exporter
from edge.engines import Engine
from edge.listening import Listening, hashed, idle_poller, listening, status_of
from edge.waiting import until
from prefixwatch.config import Config
from prefixwatch.listener import accepting, connection, guard
from prefixwatch.listener.pieces import Pieces
from prefixwatch.web import application

GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
BIG = b"x" * (8 * 2**20)


@asynccontextmanager
async def opened(port: int, sent: bytes = b"", *, buffer: int | None = None) -> AsyncIterator[socket.socket]:
    """A connection of which nothing is read unless the test does. `buffer`: of received bytes."""
    client = socket.socket()
    if buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    try:
        if sent:
            await asyncio.get_running_loop().sock_sendall(client, sent)
        yield client
    finally:
        client.close()


async def end_of(client: socket.socket) -> bytes:
    """Return what a connection gives until it ends."""
    loop, read = asyncio.get_running_loop(), b""
    with suppress(ConnectionError):
        while chunk := await loop.sock_recv(client, 65536):
            read += chunk
    return read


def with_routes(**handlers: Callable[[web.Request], object]) -> web.Application:
    app = application(Config(), idle_poller(), polls=False)
    for name, handler in handlers.items():
        app.router.add_get(f"/{name}", handler)
    return app


async def big(_: web.Request) -> web.Response:
    return web.Response(body=BIG)


# Time.


async def test_a_request_that_drips_in_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.3)
    async with listening() as served, opened(served.port) as client:
        began, sent = time.monotonic(), 0
        with suppress(ConnectionError):
            while time.monotonic() - began < 5:
                await asyncio.get_running_loop().sock_sendall(client, GET[sent : sent + 1])
                sent += 1
                await asyncio.sleep(0.03)
                if sent == len(GET):
                    pytest.fail("the whole request was taken")
        assert 0.25 < time.monotonic() - began < 2


async def test_a_second_request_has_no_more_time_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.3)
    async with listening() as served, opened(served.port, GET + GET[:9]) as client:
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await asyncio.get_running_loop().sock_sendall(client, GET[9:12])
        assert (await end_of(client)).count(b"200 OK") == 1
        assert time.monotonic() - began < 2


@pytest.mark.parametrize("sent", [b"", GET], ids=["nothing sent", "one request"])
async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.6)
    async with listening() as served, opened(served.port, sent) as client:
        began = time.monotonic()
        assert (b"200 OK" in await end_of(client)) is bool(sent)
        assert (0.5 if sent else 0.1) < time.monotonic() - began < 3


async def test_connections_are_kept_for_the_next_scrape() -> None:
    async with listening() as served, aiohttp.ClientSession() as client:
        for _ in range(3):
            async with client.get(f"http://127.0.0.1:{served.port}/metrics") as response:
                assert response.status == 200
        assert connection.IDLE_SECONDS > 60
        assert len(served.listener._waiting) == 1


async def test_a_handshake_that_does_not_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "HANDSHAKE_SECONDS", 0.3)
    authority = Authority(tmp_path, "ca")
    authority.certificate("server")
    (tmp_path / "web.yaml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}")
    async with listening(tmp_path / "web.yaml") as served, opened(served.port, b"\x16\x03\x01") as client:
        assert await status_of(served.port, context=ssl.create_default_context(cafile=authority.ca_file)) == 200
        await asyncio.wait_for(end_of(client), 5)
        await until(lambda: not served.listener._arriving)


async def test_a_client_that_reads_nothing_holds_a_bounded_memory_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(guard, "MAX_ANSWERS", 3)
    request = GET.replace(b"/metrics", b"/big")
    async with listening(app=with_routes(big=big)) as served:
        connections = served.listener._busy
        clients = [opened(served.port, request, buffer=4096) for _ in range(20)]
        for client in clients:
            await client.__aenter__()
        await until(lambda: len(connections) == 3)
        await asyncio.sleep(0.1)
        held = sum(one.transport.get_write_buffer_size() for one in connections if one.transport)
        assert 0 < held <= 3 * len(BIG)
        assert await status_of(served.port, "/healthz") == 200
        assert await status_of(served.port) == 503
        await until(lambda: not connections)
        assert await status_of(served.port, "/big") == 200
        for client in clients:
            await client.__aexit__(None, None, None)


async def test_of_an_answer_in_pieces_few_wait_for_the_client() -> None:
    async def in_pieces(_: web.Request) -> web.Response:
        return web.Response(body=Pieces([BIG, b"", bytearray(b"end")]))

    async with listening(app=with_routes(pieces=in_pieces)) as served:
        async with opened(served.port, GET.replace(b"/metrics", b"/pieces"), buffer=4096):
            await until(lambda: any(one.transport.get_write_buffer_size() for one in served.listener._busy))
            (busy,) = served.listener._busy
            assert busy.transport.get_write_buffer_size() <= 2**18
        answer = await served.raw(LAST.replace(b"/metrics", b"/pieces"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert f"Content-Length: {len(BIG) + 3}".encode() in head
        assert body == BIG + b"end"


async def test_answers_that_nobody_reads_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ANSWER_SECONDS", 0.5)
    async with listening() as served, opened(served.port, buffer=4096) as client:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(20):
                while True:
                    await loop.sock_sendall(client, b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n" * 500)
                    held = [
                        one.transport
                        for one in (*served.listener._busy, *served.listener._waiting)
                        if hasattr(one, "transport")
                    ]
                    assert all(one.get_write_buffer_size() < 2**20 for one in held if one)
        await until(lambda: not served.listener._busy)


# Number.


async def test_a_scrape_gets_through_a_crowd_of_slow_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "MAX_CONNECTIONS", 20)
    async with listening() as served:
        crowd = [opened(served.port, GET[:20]) for _ in range(60)]
        for one in crowd:
            await one.__aenter__()
            assert len(served.listener._waiting) <= 20
        for _ in range(3):
            assert await status_of(served.port) == 200
        for one in crowd:
            await one.__aexit__(None, None, None)


@asynccontextmanager
async def slow_answers(count: int) -> AsyncIterator[tuple[Listening, list[asyncio.Task[int]], asyncio.Event]]:
    """Yield a listener that is busy with so many answers, their tasks, and what ends them."""
    release = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response(text="done")

    async with listening(app=with_routes(slow=slow)) as served:
        waiting = [asyncio.create_task(status_of(served.port, "/slow")) for _ in range(count)]
        await until(lambda: len(served.listener._busy) == count)
        yield served, waiting, release


async def test_where_all_are_busy_one_more_is_refused_and_it_is_told_once(
    monkeypatch: pytest.MonkeyPatch, records
) -> None:
    monkeypatch.setattr(accepting, "MAX_CONNECTIONS", 3)
    async with slow_answers(3) as (served, waiting, release):
        for _ in range(3):
            with pytest.raises(aiohttp.ClientConnectionError):
                await status_of(served.port)
        release.set()
        assert await asyncio.gather(*waiting) == [200, 200, 200]
        assert await status_of(served.port) == 200
    assert [record.getMessage() for record in records] == ["3 connections are being answered: more are refused"]


async def test_no_more_than_so_many_answers_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_ANSWERS", 2)
    async with slow_answers(2) as (served, waiting, release):
        answer = await served.raw(LAST)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in answer
        assert await status_of(served.port, "/healthz") == 200
        release.set()
        assert await asyncio.gather(*waiting) == [200, 200]
        assert await status_of(served.port) == 200


async def test_an_answer_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ANSWER_SECONDS", 0.2)

    async def hang(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with listening(app=with_routes(hang=hang)) as served:
        with pytest.raises(aiohttp.ClientConnectionError):
            await asyncio.wait_for(status_of(served.port, "/hang"), 5)
        assert await status_of(served.port) == 200


async def test_a_rate_limit(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text("rate_limit: {interval: 1h, burst: 2}")
    async with listening(tmp_path / "web.yaml") as served:
        assert [await status_of(served.port) for _ in range(4)] == [200, 200, 429, 429]
        assert await status_of(served.port, "/healthz") == 200


# What a request may be.


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/metrics", "/", "/nothing", "/healthz"])
async def test_only_get_and_head(method: str, path: str) -> None:
    async with listening() as served:
        answer = await served.raw(f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 405 ")
        assert b"\r\nAllow: GET, HEAD\r\n" in answer


@pytest.mark.parametrize("path", ["/metrics", "/", "/healthz", "/api/v1/status"])
async def test_head_is_get_without_the_body(path: str) -> None:
    async with listening() as served:
        get, head = [
            await served.raw(LAST.replace(b"GET", method).replace(b"/metrics", path.encode()))
            for method in (b"GET", b"HEAD")
        ]
        of_get, _, body = get.partition(b"\r\n\r\n")
        of_head, _, nothing = head.partition(b"\r\n\r\n")
        dated = re.compile(rb"Date: [^\r]*")
        assert body
        assert (dated.sub(b"", of_get), nothing) == (dated.sub(b"", of_head), b"")


UNREADABLE = [
    pytest.param(b"GET /" + b"s3cret" * 2000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", id="long line"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"s3cret" * 2000 + b"\r\n\r\n", id="long header"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nX s3cret\r\n\r\n", id="no colon"),
    pytest.param(b"GET /s3cret HTTP/9.9\r\n\r\n", id="version"),
    pytest.param(b"<script>alert('s3cret')</script>\r\n\r\n", id="HTML"),
    pytest.param(b"\x16\x03\x01\x02\x00s3cret\r\n\r\n", id="TLS on a plain port"),
    pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: s3cret\r\n\r\n", id="length"),
    pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", id="smuggling"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00s3cret\r\n\r\n", id="NUL"),
]  # fmt: skip


@pytest.mark.parametrize("sent", UNREADABLE)
async def test_what_is_no_request_is_not_repeated_and_not_logged(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as served:
        answer = await asyncio.wait_for(served.raw(sent), 5)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert re.match(rb"HTTP/1\.[01] 400 ", head)
        assert body == b"this is not a request that can be read\n"
        assert b"nosniff" in head
        assert await status_of(served.port) == 200
    assert caplog.records == []


async def test_a_head_without_end_ends_the_connection() -> None:
    async with listening() as served:
        header = b"X: " + b"a" * 1000 + b"\r\n"
        answer = await asyncio.wait_for(served.raw(b"GET / HTTP/1.1\r\nHost: a\r\n" + header * 1000), 5)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
        assert await status_of(served.port) == 200


async def test_a_body_is_not_waited_for_and_never_unpacked() -> None:
    bomb = gzip.compress(b"0" * (64 * 2**20))
    request = b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    async with listening() as served:
        began, cpu = time.monotonic(), time.process_time()
        async with opened(served.port, request % 10**12 + bomb) as client:
            assert (await end_of(client)).startswith(b"HTTP/1.1 405 ")
        assert time.monotonic() - began < 4
        assert time.process_time() - cpu < 1
        assert await status_of(served.port) == 200


# The whole exporter under attack.


def memory(process_id: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_the_exporter_lives_polls_and_answers_under_attack(engine: Engine) -> None:
    polls: list[float] = []

    async def timed(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        polls.append(time.monotonic())
        return web.Response(body=engine.page, content_type="text/plain")

    engine.answer = timed
    async with exporter(engine.url, "--poll-interval", "0.5s") as running:
        port = int(running.url.rpartition(":")[2])
        await until(lambda: len(polls) > 2)
        before, began = memory(running.process.pid), time.monotonic()
        attacks = [asyncio.create_task(_attack(port, kind)) for kind in range(400)]
        scrapes, probes = [], []
        while time.monotonic() - began < 8:
            scrapes.append(await status_of(port))
            probes.append(await status_of(port, "/healthz"))
            await asyncio.sleep(0.1)
        ended_at, grown = time.monotonic(), memory(running.process.pid) - before
        for attack in attacks:
            attack.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)
        assert set(probes) == {200}
        assert 200 in scrapes, scrapes
        assert set(scrapes) <= {200, 503}, "too many answers at a time, and so it says"
        during = [began, *(one for one in polls if began < one < ended_at), ended_at]
        assert max(later - one for one, later in itertools.pairwise(during)) < 1.5, "three missed polls are stale"
        assert grown < 40 * 2**20
        answer = await served_text(port)
        assert "prefixwatch_up{" in answer
        assert "prefixwatch_poll_errors_total{" not in answer
        running.process.terminate()
        stopping = time.monotonic()
        done = await ended(running.process)
        assert time.monotonic() - stopping < 5
    assert done.code == 0
    assert done.err.count("\n") < 5, "an attack does not fill the log"


async def served_text(port: int) -> str:
    async with aiohttp.request("GET", f"http://127.0.0.1:{port}/metrics") as response:
        assert response.status == 200
        return await response.text()


async def _attack(port: int, kind: int) -> None:
    """Drip a request, send nothing, never read, or send rubbish; again and again."""
    first = (GET[:30], b"", GET * 50, b"\x00" * 100)[kind % 4]
    while True:
        with suppress(OSError):
            async with opened(port, first, buffer=4096) as client:
                for _ in range(40):
                    await asyncio.sleep(0.5)
                    if kind % 4 == 0:
                        await asyncio.get_running_loop().sock_sendall(client, b"a")
        await asyncio.sleep(0.5)


async def test_a_slow_client_a_hanging_target_and_events_do_not_delay_the_end(engine: Engine, tmp_path: Path) -> None:
    engine.answer = engines.hang
    (tmp_path / "web.yaml").write_text(f"basic_auth_users: {{a: {hashed('x')}}}\n")
    arguments = (engine.url, "--events", "tcp://127.0.0.1:9", "--web-config-file", tmp_path / "web.yaml")
    async with exporter(*arguments) as running:
        port = int(running.url.rpartition(":")[2])
        await until(lambda: engine.requests)
        async with opened(port, GET[:20]), opened(port), opened(port, GET * 30, buffer=4096):
            assert await status_of(port, "/healthz") == 200
            running.process.terminate()
            began = time.monotonic()
            done = await ended(running.process)
            assert time.monotonic() - began < 5
    assert done.code == 0
    assert "Traceback" not in done.err


async def test_an_answer_in_the_making_is_still_sent_at_the_end() -> None:
    release = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response(text="done")

    async with listening(app=with_routes(slow=slow), drain_seconds=5) as served:
        waiting = asyncio.create_task(status_of(served.port, "/slow"))
        await until(lambda: served.listener._busy)
        asyncio.get_running_loop().call_later(0.2, release.set)
    assert await waiting == 200


async def test_an_answer_that_is_not_read_is_not_waited_for_at_the_end() -> None:
    request = GET.replace(b"/metrics", b"/big")
    async with listening(app=with_routes(big=big), drain_seconds=0.3) as served:
        client = opened(served.port, request, buffer=4096)
        await client.__aenter__()
        await until(lambda: served.listener._busy)
        began = time.monotonic()
    assert time.monotonic() - began < 2
    await client.__aexit__(None, None, None)


async def test_a_port_on_every_address_is_one_port() -> None:
    sockets = accepting._bound(None, 0)
    try:
        assert len({one.getsockname()[1] for one in sockets}) == 1
        assert {one.family for one in sockets} <= {socket.AF_INET, socket.AF_INET6}
    finally:
        for one in sockets:
            one.close()
