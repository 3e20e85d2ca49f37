"""What goes wrong with an engine or the way to it: answers in the place of its page."""

import asyncio
import gzip
import itertools
import re

from aiohttp import web

from edge.engines import Answer, Engine, body, of_process, relabelled

_BOMB = gzip.compress(gzip.compress(bytes(200 * 2**20)))
"""200 MB of nothing in a few hundred bytes."""

_START = re.compile(rb"(?m)^process_start_time_seconds .*$")
_SOURCE = re.compile(rb'(?<=source=")local_compute(?=")')


async def slow(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Send a byte a second."""
    response = web.StreamResponse()
    await response.prepare(request)
    for byte in engine.page:
        await response.write(bytes([byte]))
        await asyncio.wait({asyncio.ensure_future(engine.end_of_silence())}, timeout=1.0)
    return response


def huge(*, chunked: bool) -> Answer:
    """Send 100 MB of good lines, as much of them as is taken."""

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        chunk = engine.page * (2**20 // len(engine.page))
        if chunked:
            response.enable_chunked_encoding()
        else:
            response.content_length = 100 * len(chunk)
        await response.prepare(request)
        for _ in range(100):
            await response.write(chunk)
            engine.bytes_sent += len(chunk)
        return response

    return answer


def cut(*, at_line_end: bool) -> Answer:
    """Send half a page, whose end looks like an end: in chunks, the last of them empty."""

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        middle = engine.page.index(b"\nvllm:prefix_cache_hits_total") + 1
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(engine.page[: middle if at_line_end else middle + 20])
        return response

    return answer


def bomb(*, is_declared: bool) -> Answer:
    """Send compressed what would be 200 MB, though nobody asked for compression."""
    if is_declared:
        return body(_BOMB, **{"Content-Encoding": "gzip"})
    return body(_BOMB)


def with_more(lines: bytes) -> Answer:
    """Send the page with more samples at its end."""

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=engine.page + lines)

    return answer


def of_another_process(born: float, *, model_name: str = "tiny") -> Answer:
    """Send what a process would that began at another time."""

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=relabelled(of_process(engine.page, born), model_name))

    return answer


def changing_models() -> Answer:
    """Send the page under another model name each time."""
    number = itertools.count()

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=relabelled(engine.page, f"model-{next(number)}"))

    return answer


def changing_sources() -> Answer:
    """Send the page with another value of one label each time."""
    number = itertools.count()

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=_SOURCE.sub(b"source-%d" % next(number), engine.page))

    return answer


async def started_later(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
    """Send the page of a process on a host whose clock was set by an hour: its start moves with it."""
    return web.Response(body=_START.sub(b"process_start_time_seconds 1.9e9", engine.page))


def in_turn(born: float) -> Answer:
    """Send the page of one process and of another in turn, as a load-balanced Service does."""
    number = itertools.count()

    async def answer(engine: Engine, request: web.BaseRequest) -> web.StreamResponse:
        page = engine.page if next(number) % 2 else of_process(engine.page, born)
        return web.Response(body=page)

    return answer
