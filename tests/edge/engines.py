"""A fake engine over HTTP: it serves the pages of a recorded trace, and fails on demand."""

import asyncio
import functools
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from aiohttp import web

from prefixwatch.trace import scrapes

DATA = Path(__file__).parents[1] / "data"
SGLANG = b"""\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="tiny"} 1.0
# HELP sglang:cache_hit_rate The prefix cache hit rate.
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{model_name="tiny"} 0.5
"""
HTML = b"<!doctype html><html><body><h1>It works!</h1></body></html>\n"
JSON = b'{"detail": "Not Found"}'

Answer = Callable[["Engine", web.BaseRequest], Awaitable[web.StreamResponse]]


@functools.cache
def trace(name: str) -> tuple[tuple[float, bytes], ...]:
    """Return (time, page) of each scrape of a recorded trace that gave a page."""
    return tuple((s.time, s.body) for s in scrapes(DATA / "traces" / name) if s.body is not None)


def relabelled(page: bytes, model_name: str) -> bytes:
    """Return the page as an engine with another model would write it."""
    return page.replace(b'model_name="tiny"', b'model_name="%s"' % model_name.encode())


def counter(page: bytes, name: str) -> float:
    """Return the value of the one series of that name."""
    (found,) = re.findall(rb"(?m)^%b(?:\{.*\})? (\S+)$" % name.encode(), page)
    return float(found)


def token_hit_ratio(first: bytes, last: bytes) -> float:
    """Return what the token hit ratio between two pages of a process is."""
    hits, queries = (
        counter(last, name) - counter(first, name)
        for name in ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
    )
    return hits / queries


def of_process(page: bytes, started: float) -> bytes:
    """Return the page as a process that started then would write it."""
    return re.sub(rb"(?m)^(\S*_created(?:\{.*\})?|process_start_time_seconds) .*$", rb"\1 %.3f" % started, page)


@dataclass(kw_only=True)
class Engine:
    """Serve `page` at /metrics until `answer` is something else.

    `bytes_sent`: of an endless answer; `played`: the pages that `playing` gave.
    """

    page: bytes = b""
    release: str | None = "0.32.0"
    answer: Answer | None = None
    tls: ssl.SSLContext | None = None
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    bytes_sent: int = 0
    played: list[bytes] = field(default_factory=list)
    port: int = 0
    connections: set[object] = field(default_factory=set)
    _runner: web.ServerRunner | None = None
    _is_stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/metrics"

    async def start(self) -> None:
        """Listen: the first time on a free port, later on the same one."""
        self._is_stopping.clear()
        self._runner = web.ServerRunner(web.Server(self._respond, access_log=None), shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Die as a killed process does: the port is closed, connections are reset."""
        if self._runner is None:
            return
        self._is_stopping.set()
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()
        self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def end_of_silence(self) -> web.StreamResponse:
        """Wait until the engine stops."""
        await self._is_stopping.wait()
        return web.Response(status=500)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.path, dict(request.headers)))
        self.connections.add(request.transport)
        if request.path == "/version":
            if self.release is None:
                return web.Response(status=404)
            return web.json_response({"version": self.release})
        if self.answer is not None:
            return await self.answer(self, request)
        return web.Response(body=self.page, content_type="text/plain")


async def hang(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Accept and never answer."""
    return await engine.end_of_silence()


async def drip(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Send a byte now and then."""
    response = web.StreamResponse()
    await response.prepare(request)
    for byte in engine.page:
        await response.write(bytes([byte]))
        await asyncio.sleep(0.02)
    return response


async def cut_off(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Promise a whole page and send half of it."""
    response = web.StreamResponse()
    response.content_length = len(engine.page)
    await response.prepare(request)
    await response.write(engine.page[: len(engine.page) // 2])
    request.transport.close()
    return response


async def half(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Send a page that ends in the middle of a line."""
    middle = engine.page.index(b"\n", len(engine.page) // 2)
    return web.Response(body=engine.page[: middle - 5], content_type="text/plain")


async def endless(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Send 100 MB, as much of it as is taken."""
    response = web.StreamResponse()
    await response.prepare(request)
    chunk = engine.page * (2**20 // len(engine.page) + 1)
    while engine.bytes_sent < 100 * 2**20:
        await response.write(chunk)
        engine.bytes_sent += len(chunk)
    return response


async def not_http(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Speak something else."""
    request.transport.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    request.transport.close()
    return await engine.end_of_silence()


async def drop(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Close the connection instead of an answer."""
    request.transport.abort()
    return await engine.end_of_silence()


async def wants_token(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Answer with the page whoever brings the token."""
    if request.headers.get("Authorization") != "Bearer open-sesame":
        return web.json_response({"error": "Unauthorized"}, status=401)
    return web.Response(body=engine.page, content_type="text/plain")


def status(code: int, **headers: str) -> Answer:
    """Answer with a status and a body that is a good page."""

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=code, body=engine.page, headers=headers)

    return answer


def body(content: bytes, **headers: str) -> Answer:
    """Answer 200 with this body."""

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=content, headers={"Content-Type": "text/plain", **headers})

    return answer


def playing(pages: Sequence[bytes]) -> Answer:
    """Answer each request with the next page; the last one stays."""

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        engine.page = pages[min(len(engine.played), len(pages) - 1)]
        engine.played.append(engine.page)
        return web.Response(body=engine.page, content_type="text/plain")

    return answer
