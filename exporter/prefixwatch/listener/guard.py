"""What stands before every handler: methods, credentials, how many answers at a time, and headers."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext
from http import HTTPStatus

from aiohttp import web

from prefixwatch.listener.configuration import RateLimit
from prefixwatch.listener.connection import Connection
from prefixwatch.listener.credentials import Doorkeeper, Verdict, challenges
from prefixwatch.listener.headers import HEADERS, PLAIN_POLICY
from prefixwatch.listener.webfile import Terms

MAX_ANSWERS = 16
"""How many requests are answered at a time, from rendering to the last byte; more get 503."""

ANSWER_SECONDS = 30.0
"""How long an answer may take, for the client to read it included."""

_METHODS = ("GET", "HEAD")
_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def no_terms() -> Terms:
    """Return the terms of a listener without a web configuration file: plain HTTP, and anybody may read."""
    return _OPEN


_OPEN = Terms()


class Guard:
    """Put before an application with `install`. `probes`: handlers that ask nobody who is there, and are never full."""

    def __init__(self, terms: Callable[[], Awaitable[Terms]], *, probes: Collection[Handler]) -> None:
        self._terms = terms
        self._probes = probes
        self._doorkeeper = Doorkeeper()
        self._bucket = _Bucket()
        self._answers = 0

    def install(self, app: web.Application) -> None:
        """Make every request to `app` pass here."""
        app.middlewares.append(self._guarded)
        app.on_response_prepare.append(self._add_headers)
        app.on_cleanup.append(self._close)

    async def _close(self, _: web.Application) -> None:
        self._doorkeeper.close()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, and send the answer: no client may take for ever to read it."""
        connection = request.protocol if isinstance(request.protocol, Connection) else None
        is_probe = request.match_info.handler in self._probes
        response: web.StreamResponse = _plain(HTTPStatus.SERVICE_UNAVAILABLE)
        self._answers += not is_probe
        with connection.answering() if connection else nullcontext():
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    response = await self._judged(request, handler, is_probe=is_probe)
                    await response.prepare(request)
                    await response.write_eof()
            except (TimeoutError, ConnectionError):
                if request.transport is not None:
                    request.transport.abort()
            finally:
                self._answers -= not is_probe
        return response

    async def _judged(self, request: web.Request, handler: Handler, *, is_probe: bool) -> web.StreamResponse:
        if request.method not in _METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, Allow=", ".join(_METHODS))
        try:
            refusal = None if is_probe else await self._refusal(request)
            return await handler(request) if refusal is None else refusal
        except web.HTTPException as error:
            return _plain(HTTPStatus(error.status))
        except (asyncio.CancelledError, TimeoutError, ConnectionError):
            raise
        except Exception:  # noqa: BLE001  answered and logged here, so that aiohttp does neither
            _log.exception("a request failed inside the exporter", extra={"path": request.path})
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """Return why a request is not answered, None where it is."""
        if self._answers > MAX_ANSWERS:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, **{"Retry-After": "1"})
        terms = await self._terms()
        if not self._bucket.takes(terms.config.rate_limit):
            return _plain(HTTPStatus.TOO_MANY_REQUESTS)
        if not terms.asks_who:
            return None
        given = request.headers.getall("Authorization", [])
        verdict = await self._doorkeeper.judge(given[0] if len(given) == 1 else None, terms)
        if verdict is Verdict.ADMITTED:
            return None
        if verdict is Verdict.BUSY:
            return _plain(HTTPStatus.TOO_MANY_REQUESTS, **{"Retry-After": "1"})
        response = _plain(HTTPStatus.UNAUTHORIZED)
        for challenge in challenges(terms):
            response.headers.add("WWW-Authenticate", challenge)
        return response

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)
        response.headers.setdefault("Content-Security-Policy", PLAIN_POLICY)
        for name, value in (await self._terms()).config.http_server_config.headers.items():
            if value:
                response.headers[name] = value


class _Bucket:
    """A token bucket: full to begin with, one more token each interval."""

    def __init__(self) -> None:
        self._tokens, self._filled = float("inf"), time.monotonic()

    def takes(self, limit: RateLimit) -> bool:
        """Take a token where there is one."""
        if not limit.interval:
            return True
        now = time.monotonic()
        self._tokens = min(limit.burst, self._tokens + (now - self._filled) / limit.interval)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _plain(status: HTTPStatus, **headers: str) -> web.Response:
    return web.Response(status=status, text=f"{status.value} {status.phrase}\n", headers=headers)
