"""The application behind its real listener, in this process, on a free port."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import aiohttp
import bcrypt
from aiohttp import web

from prefixwatch.config import Config
from prefixwatch.listener.accepting import Listener
from prefixwatch.listener.guard import no_terms
from prefixwatch.listener.webfile import Terms, WebFile
from prefixwatch.web import application


class Listening(NamedTuple):
    """An application that is served."""

    port: int
    listener: Listener
    app: web.Application

    async def raw(self, request: bytes, *, context: ssl.SSLContext | None = None) -> bytes:
        """Send bytes, and return all that comes until the connection ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        try:
            writer.write(request)
            return await reader.read()
        except ConnectionError:  # it was cut off, and not closed
            return b""
        finally:
            writer.close()


def idle_poller() -> SimpleNamespace:
    """Return what the application asks of a poller, without targets."""
    discovery = SimpleNamespace(is_file_good=None, is_done=True, dns_names=())
    return SimpleNamespace(statuses=[], discovery=discovery, is_ready=True)


@asynccontextmanager
async def listening(
    terms: Path | Callable[[], Awaitable[Terms]] = no_terms,
    *,
    app: web.Application | None = None,
    drain_seconds: float = 0.2,
) -> AsyncIterator[Listening]:
    """Serve until the block is left. `terms`: or a web configuration file."""
    held = WebFile(terms).terms if isinstance(terms, Path) else terms
    app = app or application(Config(), idle_poller(), polls=False, terms=held)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    listener = Listener(runner.server, held)
    port = listener.listen("127.0.0.1", 0)
    try:
        yield Listening(port, listener, app)
    finally:
        await listener.close(within=drain_seconds)
        await runner.cleanup()


def hashed(password: str, *, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(cost)).decode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def status_of(
    port: int, path: str = "/metrics", *, authorization: str | None = None, context: ssl.SSLContext | None = None
) -> int:
    """Return the status of an answer, over a connection of its own."""
    headers = {"Authorization": authorization} if authorization else {}
    scheme = "https" if context else "http"
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"{scheme}://127.0.0.1:{port}{path}", headers=headers, ssl=context or True) as response,
    ):
        await response.read()
        return response.status
