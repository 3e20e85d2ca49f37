"""Fetch one page over HTTP: bounded in size and time, no redirects, no compression."""

import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

import aiohttp
import msgspec
from yarl import URL

from prefixwatch.certificates import load_certificate, trusting
from prefixwatch.config import Access
from prefixwatch.names import Names
from prefixwatch.settings import read_token

ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
_HEADERS = {"Accept": ACCEPT, "Accept-Encoding": "identity"}
_MAX_VERSION_BYTES = 4096
_KEPT_URLS = 10_000
"""So many parsed URLs are kept; aiohttp keeps 128 by itself, and parses those of more targets at each poll."""
_HINTS = {
    401: "the target wants credentials: set access.bearer_token_file, or --bearer-token-file",
    403: "the target refuses this client: check access.bearer_token_file or the client certificate",
    404: "there is no page at this path: vLLM serves it at /metrics",
    503: "the target is not ready",
}


class FetchError(Exception):
    """A page that did not come. `kind` is one word for a metric's label, the message for a person.

    `may_be_loading`: an engine that is still starting answers like this.
    """

    def __init__(self, kind: str, message: str, *, may_be_loading: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.may_be_loading = may_be_loading


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a target's pages are. `server_name`: the name to check a certificate against, and to ask for."""

    url: str
    access: Access = Access()
    server_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a target sent."""

    content: bytes
    is_openmetrics: bool


class _Options(TypedDict, total=False):
    headers: dict[str, str]
    ssl: ssl.SSLContext | bool
    server_hostname: str


class Fetcher:
    """Fetch pages with one shared session. Files of `Access` are reread when they change."""

    def __init__(self, session: aiohttp.ClientSession, *, timeout: float, max_bytes: int) -> None:
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._max_bytes = max_bytes
        self._contexts: dict[tuple[Access, tuple[int, ...]], ssl.SSLContext] = {}

    async def page(self, address: Address) -> Body:
        """Return the page. Raises `FetchError`, and nothing else for whatever the network does."""
        return await self._get(address, address.url, self._max_bytes)

    async def release(self, address: Address) -> str | None:
        """Return what /version beside the page answers, None where it does not."""
        url = address.url.partition("?")[0].rpartition("/")[0] + "/version"
        try:
            body = await self._get(address, url, _MAX_VERSION_BYTES)
            version = msgspec.json.decode(body.content, type=dict[str, object]).get("version")
        except (FetchError, msgspec.MsgspecError):
            return None
        return version[:64] if isinstance(version, str) and version.isprintable() else None

    async def _get(self, address: Address, url: str, max_bytes: int) -> Body:
        try:
            options = self._options(address, url)
        except (OSError, ValueError) as error:
            raise FetchError("access", f"a file of access cannot be used: {_words(error)}") from None
        try:
            async with self._session.get(
                _parsed(url), timeout=self._timeout, allow_redirects=False, **options
            ) as response:
                if response.status != 200:
                    raise _of_status(response.status)
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise FetchError("not_metrics", "the answer is compressed although that was not asked for")
                content = await _bounded(response, max_bytes)
                return Body(content=content, is_openmetrics="openmetrics" in response.content_type)
        except TimeoutError:
            raise FetchError("timeout", f"no whole answer within {self._timeout.total:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _of_fault(error, is_tls=url.startswith("https:")) from None

    def _options(self, address: Address, url: str) -> _Options:
        """Return how to ask, beside what the session does by itself; files of access are read here."""
        access = address.access
        headers: dict[str, str] = {}
        options: _Options = {"headers": headers, "ssl": self._context(access) or True}
        if access.bearer_token_file:
            headers["Authorization"] = f"Bearer {read_token(Path(access.bearer_token_file))}"
        if address.server_name:
            headers["Host"] = address.server_name
            if url.startswith("https:"):
                options["server_hostname"] = address.server_name.rpartition(":")[0]
        return options

    def _context(self, access: Access) -> ssl.SSLContext | None:
        files = [name for name in (access.ca_file, access.cert_file, access.key_file) if name]
        if not files:
            return None
        key = (access, tuple(Path(name).stat().st_mtime_ns for name in files))
        context = self._contexts.get(key)
        if context is None:
            context = trusting(access.ca_file)
            if access.cert_file:
                load_certificate(context, access.cert_file, access.key_file)
            self._contexts = {known: kept for known, kept in self._contexts.items() if known[0] != access}
            self._contexts[key] = context
        return context


@lru_cache(maxsize=_KEPT_URLS)
def _parsed(url: str) -> URL:
    try:
        return URL(url)
    except ValueError:
        raise aiohttp.InvalidURL(url) from None


def _of_fault(error: Exception, *, is_tls: bool) -> FetchError:
    """Name what went wrong. The words of aiohttp stay out: they may hold the URL's query, or what was sent."""
    if isinstance(fault := _root_of(error), ssl.SSLError):
        return FetchError("tls", f"TLS: {_words(fault)}")
    match error:
        case aiohttp.ClientConnectorDNSError():
            return FetchError("dns", f"the name does not resolve: {_words(error.os_error)}")
        case aiohttp.ClientConnectorError():
            return FetchError("connection", f"no connection: {_words(error.os_error)}", may_be_loading=True)
        case aiohttp.ClientPayloadError():
            return FetchError("cut_off", "the answer broke off in the middle")
        case aiohttp.ClientResponseError():
            return FetchError("not_http", "the answer is not HTTP")
        case aiohttp.InvalidURL():
            return FetchError("connection", "no connection: this cannot be the name of a host")
        case aiohttp.ClientError() | ConnectionError():
            hint = ": does the target want a client certificate?" if is_tls else ""
            return FetchError("connection", f"the connection broke before there was an answer{hint}")
        case _:
            return FetchError("connection", f"no connection: {_words(error)}")


def _root_of(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or "the handshake failed").replace("_", " ").lower()
    if not isinstance(error, OSError):
        return str(error)
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    is_numbered = error.errno is not None and not isinstance(error, socket.gaierror)
    return os.strerror(error.errno or 0) if is_numbered else error.strerror or type(error).__name__


def _of_status(status: int) -> FetchError:
    if 300 <= status < 400:
        return FetchError("redirect", f"HTTP {status}: redirects are not followed; name the address itself")
    hint = f": {_HINTS[status]}" if status in _HINTS else ""
    return FetchError(f"http_{status // 100}xx", f"HTTP {status}{hint}", may_be_loading=status == 503)


async def _bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    chunks, size = [], 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > max_bytes:
            response.close()
            raise FetchError("too_large", f"the page is larger than {max_bytes} bytes (max_page_bytes)")
        chunks.append(chunk)
    return b"".join(chunks)


@asynccontextmanager
async def session(names: Names | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session for a `Fetcher`: connections are kept, as many as there are targets."""
    names = names or Names()
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=15, resolver=names)
    cookies = aiohttp.DummyCookieJar()
    client = aiohttp.ClientSession(connector=connector, headers=_HEADERS, auto_decompress=False, cookie_jar=cookies)
    try:
        async with client as shared:
            yield shared
    finally:
        await names.close()
