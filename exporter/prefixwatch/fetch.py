"""Fetch one page over HTTP: bounded in size and time, no redirects, no compression."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from prefixwatch.config import Access

ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
_MAX_VERSION_BYTES = 4096
_HINTS = {
    401: "the target wants credentials: set access.bearer_token_file",
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
        headers = {"Accept": ACCEPT, "Accept-Encoding": "identity"}
        access = address.access
        try:
            if access.bearer_token_file:
                headers["Authorization"] = f"Bearer {_read(access.bearer_token_file)}"
            if address.server_name:
                headers["Host"] = address.server_name
            async with self._session.get(
                url, headers=headers, timeout=self._timeout, allow_redirects=False,
                ssl=self._context(access) or True,
                server_hostname=address.server_name.rpartition(":")[0] if address.server_name and url.startswith("https") else None,
            ) as response:  # fmt: skip
                if response.status != 200:
                    raise _of_status(response.status)
                content = await _bounded(response, max_bytes)
                return Body(content=content, is_openmetrics="openmetrics" in response.content_type)
        except FetchError:
            raise
        except TimeoutError:
            raise FetchError("timeout", f"no whole answer within {self._timeout.total:g} s") from None
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError, ssl.SSLError) as error:
            raise FetchError("tls", f"TLS: {error}") from None
        except aiohttp.ClientConnectorDNSError as error:
            raise FetchError("dns", f"the name does not resolve: {error.strerror or error}") from None
        except aiohttp.ClientConnectorError as error:
            raise FetchError("connection", f"no connection: {error.strerror or error}", may_be_loading=True) from None
        except aiohttp.ClientPayloadError:
            raise FetchError("cut_off", "the answer broke off in the middle") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise FetchError("connection", f"the answer is no HTTP, or broke off ({type(error).__name__}: {error})") from None
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise FetchError("access", f"a file of access cannot be used: {error}") from None

    def _context(self, access: Access) -> ssl.SSLContext | None:
        files = [name for name in (access.ca_file, access.cert_file, access.key_file) if name]
        if not files:
            return None
        key = (access, tuple(Path(name).stat().st_mtime_ns for name in files))
        context = self._contexts.get(key)
        if context is None:
            context = ssl.create_default_context(cafile=access.ca_file)
            if access.cert_file:
                context.load_cert_chain(access.cert_file, access.key_file)
            self._contexts = {known: kept for known, kept in self._contexts.items() if known[0] != access}
            self._contexts[key] = context
        return context


def _read(file: str) -> str:
    return Path(file).read_text("utf-8").strip()


def _of_status(status: int) -> FetchError:
    if 300 <= status < 400:
        return FetchError("redirect", f"HTTP {status}: redirects are not followed; name the address itself")
    hint = f": {_HINTS[status]}" if status in _HINTS else ""
    return FetchError(f"http_{status // 100}xx", f"HTTP {status}{hint}", may_be_loading=status == 503)


async def _bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > max_bytes:
            response.close()
            raise FetchError("too_large", f"the page is larger than {max_bytes} bytes (max_page_bytes)")
        chunks.append(chunk)
    if chunks[:1] and chunks[0][:2] == b"\x1f\x8b":
        raise FetchError("not_metrics", "the answer is compressed although that was not asked for")
    return b"".join(chunks)


def session() -> aiohttp.ClientSession:
    """Return a session for a `Fetcher`: connections kept alive, as many as there are targets."""
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=15)
    return aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())


